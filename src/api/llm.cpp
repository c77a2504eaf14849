#include "inferno/llm.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "api/generation.h"
#include "api/load_options.h"
#include "api/prompt_ids.h"
#include "base/error.h"
#include "engine/builtin_model.h"
#include "engine/generate.h"
#include "engine/perplexity.h"
#include "engine/prompt.h"
#include "engine/suggested_sampling.h"
#include "engine/tool_request.h"
#include "inferno/inferno.h"
#include "profile/profiling_backend.h"

namespace inferno {

struct Llm::Impl {
  Impl(const ModelFile& file, const LoadOptions& options)
      : engine(file, with_profile(options)),
        role(engine.makes_text() ? engine.driver().role() : std::make_shared<StepperRole>()),
        suggested(inferno::suggested_sampling(file)) {}

  EngineOptions with_profile(const LoadOptions& options) {
    EngineOptions result = engine_options(options);
    if (options.profile) {
      result.decorate = [this](std::unique_ptr<Backend> backend) -> std::unique_ptr<Backend> {
        profile.emplace(*backend);
        auto made = std::make_unique<ProfilingBackend>(std::move(backend), &*profile, nullptr);
        profiling = made.get();
        return made;
      };
    }
    return result;
  }
  [[nodiscard]] const Tokenizer& tokenizer() const {
    if (engine.tokenizer() == nullptr) fail("this model has no vocabulary, or this build no tokenizers");
    return *engine.tokenizer();
  }

  // Whether all that ran was ended since this call.
  [[nodiscard]] Embedder::ShouldEnd until_cancelled() const {
    return [this, before = cancels.load(std::memory_order_relaxed)] {
      return cancels.load(std::memory_order_relaxed) != before;
    };
  }

  std::optional<Profile> profile;         // before the engine, which fills it
  ProfilingBackend* profiling = nullptr;  // owned by the engine
  Engine engine;
  std::shared_ptr<StepperRole> role;
  std::atomic<uint64_t> cancels{0};  // how often all that ran was ended
  std::optional<SamplingSettings> suggested;
};

Llm::Llm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Llm::Llm(Llm&& other) noexcept = default;

Llm::~Llm() {
  // A child of fork() has none of the threads that would have to be waited for.
  if (impl_ != nullptr && !impl_->role->is_own_process()) {
    [[maybe_unused]] const Impl* left_alone = impl_.release();
  }
}

Llm& Llm::operator=(Llm&& other) noexcept {
  Llm taken(std::move(other));
  std::swap(impl_, taken.impl_);
  return *this;
}

Llm::Impl& Llm::impl() const {
  if (impl_ == nullptr) fail_usage("this Llm was moved from and has no model");
  impl_->role->check_process();
  return *impl_;
}

Llm Llm::load(const std::string& path, const LoadOptions& options) {
  return Llm(std::make_unique<Impl>(AnyModelFile::open(find_model(path)), options));
}

Llm Llm::builtin(const LoadOptions& options) {
  return Llm(std::make_unique<Impl>(open_builtin_model(), options));
}

namespace {

// The form that is asked for; without one, that of calls where a conversation has tools.
void constrain(Engine& engine, const Prompt& prompt, const GenerateOptions& options, Request& request) {
  const auto* chat = std::get_if<Prompt::Chat>(&prompt.content);
  if (chat != nullptr && engine.tokenizer() != nullptr) {
    const ToolRequest tools = tool_request(chat->options);
    if (tools.required && !options.constraint.empty()) {
      fail_usage("`tool_choice` asks for a call, `constraint` for an answer of another form");
    }
    const AnswerForm form = answer_form(*engine.tokenizer(), chat->options.chat_template, tools, true, request.prompt);
    const auto calls = call_form(form, tools);
    if (calls && options.constraint.empty() && !request.allowed) return engine.constraints().apply(*calls, request);
  }
  engine.constraints().apply(options.constraint, request);
}

// A request whose Generation somebody holds.
Request prepare(Engine& engine, const Prompt& prompt, std::vector<int32_t> ids, const GenerateOptions& options,
                TokenCallback on_token, const std::shared_ptr<Generation::State>& state,
                std::function<void()> on_done) {
  state->role = engine.driver().role();
  state->buffered = !on_token;
  Request request = make_request(std::move(ids), options, std::move(on_token), state, std::move(on_done));
  constrain(engine, prompt, options, request);
  return request;
}

}  // namespace

GenerateResult Llm::generate(const Prompt& prompt, const GenerateOptions& options, const TokenCallback& on_token) {
  Engine& engine = impl().engine;
  const auto state = std::make_shared<Generation::State>();
  Request request = make_request(encode(prompt), options, on_token, state);
  constrain(engine, prompt, options, request);
  return state->finished(engine.driver().run(std::move(request)));
}

ChatAnswer Llm::answer(const Prompt::Chat& chat, const GenerateOptions& options, const AnswerCallback& on_piece) {
  if (options.samples != 1)
    fail_usage("an answer is one sample, not {}; read several with answer_reader()", options.samples);
  AnswerReader reader = answer_reader(chat, options.sampling.seed);
  const auto give = [&](const AnswerPiece& piece) { return piece.empty() || !on_piece || on_piece(piece); };
  ChatAnswer made;
  made.result = generate(Prompt(chat.messages, chat.options), options,
                         [&](const TokenEvent& token) { return give(reader.push(token.text)); });
  (void)give(reader.finish());
  made.message = reader.message();
  return made;
}

AnswerReader Llm::answer_reader(const Prompt::Chat& chat, uint64_t id_seed) const {
  const ToolRequest tools = tool_request(chat.options);
  AnswerForm form = answer_form(impl().tokenizer(), chat.options.chat_template, tools, true,
                                encode(Prompt(chat.messages, chat.options)));
  form.id_seed = id_seed;
  return read_answer(std::move(form));
}

GenerateResult Llm::chat(std::vector<ChatMessage> messages, const GenerateOptions& options,
                         const TokenCallback& on_token) {
  return generate(Prompt(std::move(messages)), options, on_token);
}

Generation Llm::submit(const Prompt& prompt, const GenerateOptions& options, TokenCallback on_token,
                       std::function<void()> on_done) {
  const auto state = std::make_shared<Generation::State>();
  Request request =
      prepare(impl().engine, prompt, encode(prompt), options, std::move(on_token), state, std::move(on_done));
  state->ticket = impl().engine.driver().submit(std::move(request));
  return Generation(state);
}

Generation Llm::enqueue(const Prompt& prompt, const GenerateOptions& options, TokenCallback on_token,
                        std::function<void()> on_done) {
  const auto state = std::make_shared<Generation::State>();
  state->is_enqueued = true;
  Request request =
      prepare(impl().engine, prompt, encode(prompt), options, std::move(on_token), state, std::move(on_done));
  state->ticket = impl().engine.driver().enqueue(std::move(request));
  return Generation(state);
}

bool Llm::step() {
  return impl().engine.driver().advance();
}

void Llm::cancel() noexcept {
  if (impl_ == nullptr) return;
  impl_->cancels.fetch_add(1, std::memory_order_relaxed);
  if (impl_->engine.makes_text()) impl_->engine.scheduler().cancel_all();
}

Embeddings Llm::embed(std::span<const std::string> texts, const EmbedOptions& options) {
  impl().role->check_can_wait();
  Embedder& embedder = impl().engine.embedder();
  EmbedSettings settings{.normalize = options.normalize, .dimensions = options.dimensions};
  if (!options.pooling.empty()) settings.pooling = pooling_from_name(options.pooling);
  Embeddings result;
  result.pooling = pooling_name(options.pooling.empty() ? embedder.pooling() : settings.pooling);
  std::vector<EncoderText> encoded;
  for (const std::string& text : texts) {
    encoded.push_back(embedder.encode(text, options.truncate));
    result.tokens += static_cast<int64_t>(encoded.back().ids.size());
  }
  for (const std::vector<float>& vector : embedder.embed(encoded, settings, impl().until_cancelled())) {
    result.values.insert(result.values.end(), vector.begin(), vector.end());
    ++result.rows;
  }
  result.width = options.dimensions > 0 ? options.dimensions : embedder.width();
  return result;
}

std::vector<float> Llm::rerank(const std::string& query, std::span<const std::string> documents, bool truncate) {
  impl().role->check_can_wait();
  Embedder& embedder = impl().engine.embedder();
  std::vector<EncoderText> pairs;
  for (const std::string& document : documents) pairs.push_back(embedder.encode_pair(query, document, truncate));
  return embedder.score(pairs, impl().until_cancelled());
}

bool Llm::makes_text() const {
  return impl().engine.makes_text();
}

Logits Llm::logits(const Prompt& prompt, int32_t first_position) {
  Engine& engine = impl().engine;
  Request request;
  request.prompt = encode(prompt);
  request.max_new_tokens = 0;
  request.text = false;
  const auto length = static_cast<int32_t>(std::min<size_t>(request.prompt.size(), INT32_MAX));
  if (first_position < -1 || first_position >= std::max(length, 1)) {
    fail_usage("logits from position {} of a prompt of {} tokens; give one of its positions, or -1 for the last",
               first_position, length);
  }
  Logits result;
  result.first_position = first_position < 0 ? std::max(length, 1) - 1 : first_position;
  result.vocabulary = vocabulary();
  request.logits_from = result.first_position;
  request.on_logits = [&](int32_t /*first*/, std::span<const float> rows) {
    result.values.insert(result.values.end(), rows.begin(), rows.end());
  };
  (void)engine.driver().run(std::move(request));
  result.rows = static_cast<int64_t>(result.values.size()) / result.vocabulary;
  return result;
}

Perplexity Llm::perplexity(std::span<const int32_t> tokens, int64_t max_windows, const OnProgress& on_progress) {
  return measure_perplexity(impl().engine, tokens, max_windows, on_progress);
}

std::vector<int32_t> Llm::encode(const Prompt& prompt, std::span<const int32_t> before) const {
  std::vector<int32_t> ids = prompt_ids(impl().engine.tokenizer(), prompt);
  if (before.empty() || !has_vocabulary()) return ids;
  return keep_ids(impl().tokenizer(), before, ids);
}
std::vector<int32_t> Llm::tokenize(std::string_view text, bool parse_special) const {
  return impl().tokenizer().encode(text, {.parse_special = parse_special});
}
std::string Llm::detokenize(std::span<const int32_t> ids) const {
  return impl().tokenizer().decode(ids);
}
std::string Llm::render(const Prompt::Chat& chat) const {
  std::string text;
  for (const PromptPiece& piece :
       ChatFormat::from_tokenizer(impl().tokenizer(), chat.options.chat_template).render(chat.messages, chat.options)) {
    text += piece.text;
  }
  return text;
}
bool Llm::has_vocabulary() const {
  return impl().engine.tokenizer() != nullptr;
}
int32_t Llm::vocabulary() const {
  return impl().engine.model().config().vocabulary;
}
int32_t Llm::context() const {
  return impl().engine.context();
}
std::vector<int32_t> Llm::end_tokens() const {
  return impl().engine.end_tokens();
}
std::optional<SamplingSettings> Llm::suggested_sampling() const {
  return impl().suggested;
}
bool Llm::has_chat_template() const {
  return has_vocabulary() && !impl().tokenizer().chat_template().empty();
}
bool Llm::can_switch_thinking(std::string_view chat_template) const {
  return ChatFormat::from_tokenizer(impl().tokenizer(), chat_template).has_thinking_switch();
}
std::string Llm::backend() const {
  return std::string(impl().engine.backend().name());
}
std::string Llm::kv_type() const {
  if (!impl().engine.makes_text()) return std::string(dtype_name(DType::f32));
  return std::string(dtype_name(impl().engine.cache().config().dtype));
}
EngineStats Llm::stats() const {
  return impl().engine.stats();
}

ProfileReport Llm::profile() const {
  Impl& own = impl();
  if (own.profiling == nullptr) fail_usage("nothing was measured: load the model with `profile`");
  const auto lock = own.profiling->hold();
  return own.profile->data();
}

std::string version() {
  return INFERNO_VERSION;
}

}  // namespace inferno
