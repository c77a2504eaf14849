#include "generate/engine.h"

#include <algorithm>

#include "base/error.h"
#if INFERNO_TOKENIZER
#include "tokenizer/tokenizer.h"
#endif

namespace inferno {

#if !INFERNO_TOKENIZER
// Complete, so that the null pointer to it can be destroyed.
class Tokenizer {};
#endif

namespace {

// Memory for the logits of one step when all rows are wanted.
constexpr int64_t kAllLogitsBytes = int64_t{128} << 20;

int32_t choose_context(const GgufFile& file, const ModelConfig& config, int32_t wanted) {
  if (wanted > config.context) {
    fail_usage("--ctx {} is more than the {} positions \"{}\" was made for", wanted, config.context, file.path());
  }
  return wanted > 0 ? wanted : std::min(config.context, Engine::kDefaultContext);
}

std::unique_ptr<Backend> make_backend(const EngineOptions& options) {
  const std::string_view choice = options.backend.empty() ? default_backend_name() : std::string_view(options.backend);
  std::unique_ptr<Backend> made = create_backend(choice, options.backend_options);
  return options.decorate ? options.decorate(std::move(made)) : std::move(made);
}

std::vector<int32_t> find_end_tokens(const GgufFile& file, const Tokenizer* tokenizer) {
#if INFERNO_TOKENIZER
  if (tokenizer != nullptr) return {tokenizer->end_tokens().begin(), tokenizer->end_tokens().end()};
#else
  (void)tokenizer;
#endif
  std::vector<int32_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const std::optional<uint64_t> id = file.find_uint(key);
    if (id && *id <= INT32_MAX) ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace

Engine::Engine(const GgufFile& file, const EngineOptions& options) : backend_(make_backend(options)) {
  const ModelConfig config = read_config(file);
  const int32_t context = choose_context(file, config, options.context);
  const DType kv_dtype = options.kv_dtype.value_or(backend_->default_kv_dtype());
  if (!backend_->supports(OpId::attention, kv_dtype) || config.head_dim % dtype_info(kv_dtype).block_size != 0) {
    fail_usage("--kv-type {} does not work here (backend {}, heads of {})", dtype_name(kv_dtype), backend_->name(),
               config.head_dim);
  }
#if INFERNO_TOKENIZER
  if (file.find("tokenizer.ggml.model") != nullptr) {
    tokenizer_ = Tokenizer::load(file);
    if (tokenizer_->vocab_size() != config.vocabulary) {
      fail("\"{}\": {} tokens are named, but token_embd.weight has {} rows", file.path(), tokenizer_->vocab_size(),
           config.vocabulary);
    }
  }
#endif
  end_tokens_ = find_end_tokens(file, tokenizer_.get());
  model_ = std::make_unique<Model>(*backend_, file, context, options.quiet);

  StepLimits limits = options.limits;
  limits.max_tokens = std::min(limits.max_tokens, context);
  if (options.all_logits) {
    const int64_t row_bytes = int64_t{config.vocabulary} * static_cast<int64_t>(sizeof(float));
    limits.max_logit_rows =
        static_cast<int32_t>(std::clamp<int64_t>(kAllLogitsBytes / row_bytes, 1, limits.max_tokens));
    limits.max_tokens = limits.max_logit_rows;
  }
  cache_ = std::make_unique<KvCache>(*backend_, KvConfig{.layers = config.layers,
                                                         .kv_heads = config.kv_heads,
                                                         .head_dim = config.head_dim,
                                                         .dtype = kv_dtype,
                                                         .max_positions = context,
                                                         .max_sequences = limits.max_sequences});
  decoder_ = std::make_unique<Decoder>(*backend_, *model_, *cache_, limits);
}

Engine::~Engine() = default;

void Engine::forward(int32_t sequence, int32_t first, std::span<const int32_t> tokens, int32_t logit_rows,
                     const SampleRequest* request) {
  const auto count = static_cast<int32_t>(tokens.size());
  INFERNO_CHECK(cache_->resize(sequence, first + count));
  const int32_t most = decoder_->limits().max_tokens;
  for (int32_t begin = 0; begin < count; begin += most) {
    const int32_t chunk = std::min(most, count - begin);
    const int32_t rows = std::clamp(logit_rows - (count - begin - chunk), 0, chunk);
    decoder_->clear();
    decoder_->add(sequence, first + begin, tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(chunk)),
                  rows);
    const bool last = begin + chunk == count;
    decoder_->run(request != nullptr && last ? std::span(request, 1) : std::span<const SampleRequest>());
  }
}

void Engine::check_tokens(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= model_->config().vocabulary) {
      fail("token id {} is not in the vocabulary (0 to {})", id, model_->config().vocabulary - 1);
    }
  }
}

}  // namespace inferno
