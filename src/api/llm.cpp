#include <atomic>
#include <optional>

#include "base/error.h"
#include "engine/builtin_model.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/prompt.h"
#include "inferno/inferno.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

struct Llm::Impl {
  Impl(const GgufFile& file, const EngineOptions& options) : engine(file, options) {
    if (engine.tokenizer() == nullptr) fail("\"{}\" has no vocabulary", file.path());
  }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *engine.tokenizer(); }

  Engine engine;
  std::atomic<bool> cancelled{false};
};

namespace {

EngineOptions engine_options(const LoadOptions& options) {
  EngineOptions result;
  result.backend = options.backend;
  result.backend_options.threads = options.threads;
  result.context = options.context;
  if (!options.kv_type.empty()) {
    result.kv_dtype = dtype_from_name(options.kv_type);
    if (!result.kv_dtype) fail_usage("\"{}\" is not a cache type (known: f32, f16, bf16)", options.kv_type);
  }
  return result;
}

}  // namespace

Llm::Llm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Llm::~Llm() = default;
Llm::Llm(Llm&& other) noexcept = default;
Llm& Llm::operator=(Llm&& other) noexcept = default;

Llm Llm::load(const std::string& path, const LoadOptions& options) {
  return Llm(std::make_unique<Impl>(GgufFile::open(path), engine_options(options)));
}

Llm Llm::builtin(const LoadOptions& options) {
  return Llm(std::make_unique<Impl>(open_builtin_model(), engine_options(options)));
}

GenerateResult Llm::generate(std::string_view prompt, const GenerateOptions& options, const TextCallback& on_text) {
  const Tokenizer& tokenizer = impl_->tokenizer();
  Request request;
  if (options.chat) {
    const ChatMessage message{"user", std::string(prompt)};
    request.prompt = encode_chat(tokenizer, {&message, 1});
  } else {
    request.prompt = encode_prompt(tokenizer, prompt);
  }
  request.max_new_tokens = options.max_new_tokens;
  request.sampling = {.temperature = options.temperature,
                      .top_k = options.top_k,
                      .top_p = options.top_p,
                      .min_p = options.min_p,
                      .repeat_penalty = options.repeat_penalty,
                      .seed = options.seed};
  request.stop_strings = options.stop;
  request.on_token = [&](const TokenEvent& event) { return event.text.empty() || !on_text || on_text(event.text); };
  impl_->cancelled.store(false, std::memory_order_relaxed);
  const RequestResult made = inferno::generate(impl_->engine, std::move(request), &impl_->cancelled);
  GenerateResult result;
  result.text = made.samples.front().text;
  result.ids = made.samples.front().ids;
  result.stop_reason = to_string(made.samples.front().reason);
  result.metrics = {.prompt_tokens = made.metrics.prompt_tokens,
                    .generated_tokens = made.metrics.generated_tokens,
                    .time_to_first_token_ms = made.metrics.time_to_first_token_ms,
                    .decode_tokens_per_second = made.metrics.decode_tokens_per_second};
  return result;
}

void Llm::cancel() {
  impl_->cancelled.store(true, std::memory_order_relaxed);
}

std::vector<int32_t> Llm::tokenize(std::string_view text, bool parse_special) const {
  return impl_->tokenizer().encode(text, {.parse_special = parse_special});
}
std::string Llm::detokenize(std::span<const int32_t> ids) const {
  return impl_->tokenizer().decode(ids);
}
int32_t Llm::vocabulary() const {
  return impl_->engine.model().config().vocabulary;
}
int32_t Llm::context() const {
  return impl_->engine.context();
}
std::string Llm::backend() const {
  return std::string(impl_->engine.backend().name());
}

std::string version() {
  return INFERNO_VERSION;
}

}  // namespace inferno
