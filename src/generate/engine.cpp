#include "generate/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "model/tensor_names.h"
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

int32_t choose_context(const ModelFile& file, const ModelConfig& config, int32_t wanted) {
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

std::vector<int32_t> find_end_tokens(const ModelFile& file, const Tokenizer* tokenizer) {
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

// The memory of a model by layer: weights as the file has them, cache, and roughly what steps take.
ModelNeeds needs_of(const ModelFile& file, const ModelConfig& config, const KvConfig& kv, const StepLimits& limits) {
  ModelNeeds needs;
  needs.layer_bytes.assign(config.layers.size(), KvCache::bytes_needed(kv) / config.layers.size());
  for (size_t i = 0; i < file.tensor_count(); ++i) {
    const FileTensor& tensor = file.tensor(i);
    const int32_t layer = layer_of_tensor(tensor.name).value_or(kNoLayer);
    const bool in_layer = layer >= 0 && layer < config.layer_count();
    (in_layer ? needs.layer_bytes[static_cast<size_t>(layer)] : needs.other_bytes) += tensor.bytes;
  }
  // Of every token: the residual stream, queries and results of attention in f32, the widest op's scratch twice.
  const int64_t attention_width = config.attention_width();
  const int64_t floats = config.width + 2 * attention_width + 2 * std::max<int64_t>(config.ffn(), attention_width);
  needs.other_bytes += static_cast<uint64_t>(
      (int64_t{limits.max_tokens} * floats + int64_t{limits.max_logit_rows} * config.vocabulary) * 4);
  return needs;
}

}  // namespace

Engine::Engine(const ModelFile& file, const EngineOptions& options) : backend_(make_backend(options)) {
  ModelConfig config = read_config(file);
  const int32_t context = choose_context(file, config, options.context);
  const DType kv_dtype = options.kv_dtype.value_or(backend_->default_kv_dtype());
  if (!backend_->supports(OpId::attention, kv_dtype) ||
      config.layers[0].head_dim % dtype_info(kv_dtype).block_size != 0) {
    fail_usage("--kv-type {} does not work here (backend {}, heads of {})", dtype_name(kv_dtype), backend_->name(),
               config.layers[0].head_dim);
  }
#if INFERNO_TOKENIZER
  if (file.has_vocabulary()) {
    tokenizer_ = Tokenizer::load(file);
    if (tokenizer_->vocab_size() != config.vocabulary) {
      fail("\"{}\": {} tokens are named, but token_embd.weight has {} rows", file.path(), tokenizer_->vocab_size(),
           config.vocabulary);
    }
  }
#endif
  end_tokens_ = find_end_tokens(file, tokenizer_.get());
  StepLimits limits = options.limits;
  // No prompt is longer than the context. Left to the backend, a step has room for one token of every sequence.
  limits.max_tokens = limits.max_tokens > 0
                          ? std::min(limits.max_tokens, context)
                          : std::max(std::min(backend_->preferred_step_tokens(), context), limits.max_sequences);
  if (options.all_logits) {
    const int64_t row_bytes = int64_t{config.vocabulary} * static_cast<int64_t>(sizeof(float));
    limits.max_logit_rows =
        static_cast<int32_t>(std::clamp<int64_t>(kAllLogitsBytes / row_bytes, 1, limits.max_tokens));
    limits.max_tokens = limits.max_logit_rows;
  }
  const KvConfig kv{.layers = config.layer_count(),
                    .kv_heads = config.layers[0].kv_heads,
                    .head_dim = config.layers[0].head_dim,
                    .dtype = kv_dtype,
                    .max_positions = context,
                    .max_sequences = limits.max_sequences};
  backend_->expect(needs_of(file, config, kv, limits));
  // A device says what it is; the host knows itself.
  if (!options.quiet && !backend_->host_visible()) {
    fmt::print(stderr, "{}: {}\n", backend_->name(), backend_->description());
  }
  model_ = std::make_unique<Model>(*backend_, file, std::move(config), context, options.quiet);
  cache_ = std::make_unique<KvCache>(*backend_, kv);
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
