#include <atomic>
#include <optional>

#include "base/error.h"
#include "generate/builtin_model.h"
#include "generate/engine.h"
#include "generate/generate.h"
#include "generate/text_stream.h"
#include "inferno/inferno.h"
#include "tokenizer/chat.h"
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
  result.quiet = true;
  if (!options.kv_type.empty()) {
    result.kv_dtype = dtype_from_name(options.kv_type);
    if (!result.kv_dtype) fail_usage("\"{}\" is not a cache type (known: f32, f16, bf16)", options.kv_type);
  }
  return result;
}

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt, bool chat) {
  if (!chat) return tokenizer.encode(prompt, {.parse_special = true, .add_bos = tokenizer.wants_bos()});
  const ChatMessage message{"user", std::string(prompt)};
  return tokenizer.encode(ChatFormat::from_tokenizer(tokenizer).render({&message, 1}));
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
  TextStream stream(tokenizer, options.stop);
  GenerationOptions generation;
  generation.max_new_tokens = options.max_new_tokens;
  generation.sampling.temperature = options.temperature;
  generation.sampling.top_k = options.top_k;
  generation.sampling.top_p = options.top_p;
  generation.sampling.min_p = options.min_p;
  generation.sampling.repeat_penalty = options.repeat_penalty;
  generation.sampling.seed = options.seed;
  const auto show = [&] { return stream.fresh().empty() || !on_text || on_text(stream.fresh()); };
  bool declined = false;

  impl_->cancelled.store(false, std::memory_order_relaxed);
  const Generation made = inferno::generate(
      impl_->engine, encode_prompt(tokenizer, prompt, options.chat), generation,
      [&](int32_t id) {
        const bool more = stream.push(id);
        declined = !show();
        return more && !declined;
      },
      &impl_->cancelled);
  if (made.reason != StopReason::stop_string) {
    stream.finish();
    (void)show();
  }
  GenerateResult result;
  result.text = stream.text();
  result.ids = made.ids;
  result.stop_reason = to_string(declined ? StopReason::cancelled : made.reason);
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
