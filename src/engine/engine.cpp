#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "engine/builtin_model.h"
#include "engine/device_trust.h"
#include "engine/explain.h"
#include "engine/first_guess.h"
#include "engine/ranks.h"
#include "model/tensor_names.h"
#include "model/tensor_source.h"
#include "tokenizer/tokenizer.h"

namespace inferno {

namespace {

// Memory for the logits of one step when all rows are wanted.
constexpr int64_t kAllLogitsBytes = int64_t{128} << 20;
constexpr int32_t kMaxSequences = 1 << 16;

int32_t choose_context(const ModelFile& file, const ModelConfig& config, int32_t wanted) {
  if (wanted > config.context) {
    fail_usage("`context` {} is more than the {} positions \"{}\" was made for; use {} or less", wanted, config.context,
               file.path(), config.context);
  }
  // Without a cache a long context costs nothing.
  const int32_t usual = config.encoder.only ? config.context : std::min(config.context, Engine::kDefaultContext);
  return wanted > 0 ? wanted : usual;
}

std::unique_ptr<Backend> make_backend(const EngineOptions& options, Communicator* ranks) {
  const std::string_view choice = options.backend.empty() ? default_backend_name() : std::string_view(options.backend);
  BackendOptions backend_options = options.backend_options;
  backend_options.ranks = ranks;
  // Who decorates a backend looks at it as it is.
  if (options.decorate) return options.decorate(create_backend(choice, backend_options));
  return create_trusted_backend(choice, backend_options);
}

std::vector<int32_t> find_end_tokens(const ModelFile& file, const Tokenizer* tokenizer) {
  if (tokenizer != nullptr) return {tokenizer->end_tokens().begin(), tokenizer->end_tokens().end()};
  std::vector<int32_t> ids;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const std::optional<uint64_t> id = file.find_uint(key);
    if (id && *id <= INT32_MAX) ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

// The memory of a model by layer: weights as the file has them, cache, and roughly what steps take.
ModelNeeds needs_of(const ModelFile& file, const ModelConfig& config, const ModelShare& share, const KvConfig& kv,
                    const StepLimits& limits) {
  ModelNeeds needs;
  needs.layer_bytes.reserve(config.layers.size());
  if (kv.layers.empty()) needs.layer_bytes.resize(config.layers.size());  // no cache
  for (size_t i = 0; i < kv.layers.size(); ++i) {
    needs.layer_bytes.push_back(KvCache::layer_page_bytes(kv, i) * static_cast<uint64_t>(kv.pages));
    for (const int64_t floats : kv.layers[i].state_floats) {
      needs.layer_bytes.back() += static_cast<uint64_t>(floats * kv.state_slots) * sizeof(float);
    }
  }
  for (int32_t i = 0; i < config.layer_count() && !share.is_whole(); ++i) {
    needs.layer_bytes[static_cast<size_t>(i)] += share_bytes(file, config, share, i);
  }
  if (!share.is_whole()) needs.other_bytes = share_bytes(file, config, share, kNoLayer);
  for (size_t i = 0; i < file.tensor_count() && share.is_whole(); ++i) {
    const FileTensor& tensor = file.tensor(i);
    const int32_t layer = layer_of_tensor(tensor.name).value_or(kNoLayer);
    const bool in_layer = layer >= 0 && layer < config.layer_count();
    (in_layer ? needs.layer_bytes[static_cast<size_t>(layer)] : needs.other_bytes) += tensor.bytes;
  }
  // Of every token: the residual stream, queries and results of attention in f32, the widest op's scratch twice.
  const int64_t attention_width = config.attention_width();
  const int64_t floats = config.width + 2 * attention_width + config.mixer_width() +
                         int64_t{config.layer_inputs} * config.layer_count() +
                         2 * std::max<int64_t>({config.ffn(), attention_width, config.experts_used() * config.width});
  needs.other_bytes += static_cast<uint64_t>(
      (int64_t{limits.max_tokens} * floats + int64_t{limits.max_logit_rows} * config.vocabulary) * 4);
  return needs;
}

// Pages of the cache: as many as asked for, or for every sequence the whole context as far as there is memory.
// `draft_page_bytes`: of the draft model's cache, which has as many.
int32_t choose_pages(const KvConfig& kv, const EngineOptions& options, const Backend& backend, uint64_t model_bytes,
                     uint64_t draft_page_bytes) {
  const uint64_t page_bytes = KvCache::page_bytes(kv);
  const auto one = static_cast<uint64_t>(KvCache::pages_for(kv.max_positions));
  if (options.kv_memory > 0) {
    const uint64_t pages = std::min(options.kv_memory / page_bytes, one * static_cast<uint64_t>(kMaxSequences));
    if (pages == 0) {
      fail_usage("{} of memory for the cache is less than one page of {} positions ({})",
                 format_bytes(options.kv_memory), KvCache::kPageSize, format_bytes(page_bytes));
    }
    return static_cast<int32_t>(pages);
  }
  uint64_t pages = one * static_cast<uint64_t>(options.limits.max_sequences);
  const std::optional<uint64_t> free = backend.cpu_numerics() ? available_memory() : backend.free_memory();
  if (free && pages > one) {
    const uint64_t taken = model_bytes + KvCache::state_bytes(kv) * static_cast<uint64_t>(kv.state_slots);
    const uint64_t left = *free > taken ? (*free - taken) / 4 * 3 : 0;
    pages = std::max(one, std::min(pages, left / (page_bytes + draft_page_bytes)));
  }
  return static_cast<int32_t>(pages);
}

// Room for tokens guessed ahead: for every sequence as many as there may be, within reason.
int32_t draft_rows(const ModelConfig& config, const StepLimits& limits, int32_t context) {
  if (std::ranges::any_of(config.layers, &LayerConfig::is_recurrent)) return 0;  // states cannot be taken back
  const int64_t row_bytes = (int64_t{config.vocabulary} + 3 * (int64_t{context} + kMaxLogitBias)) * 4;
  const auto affordable =
      static_cast<int32_t>(std::clamp<int64_t>(Engine::kDraftBytes / row_bytes, kMostDraft, Engine::kDraftRows));
  const int64_t wanted = int64_t{kMostDraft} * limits.max_sequences;
  return static_cast<int32_t>(std::min<int64_t>({wanted, affordable, limits.max_tokens}));
}

// Rather one line now than to be killed without any while loading. Where swap space helps, it is only slow.
void require_memory(const ModelFile& file, const ModelNeeds& needs) {
  const std::optional<uint64_t> available = available_memory();
  const uint64_t needed = std::accumulate(needs.layer_bytes.begin(), needs.layer_bytes.end(), needs.other_bytes);
  if (!available || needed <= *available) return;
  const std::string what = fmt::format("\"{}\" needs about {} of RAM and {} are available", file.path(),
                                       format_bytes(needed), format_bytes(*available));
  if (needed > *available + free_swap()) {
    fail("{}; use a smaller model or type, a shorter `context` or less `kv_memory`", what);
  }
  log(LogLevel::warn, "{}: it will swap, and be slow", what);
}

}  // namespace

Engine::Engine(const ModelFile& file, const EngineOptions& options) {
  if (options.ranks != nullptr && options.ranks->size() > 1) ranks_ = options.ranks;
  if (ranks_ != nullptr && ranks_->is_leader()) {
    messages_ = std::make_unique<RankMessages>(*ranks_);
    occupied_ = occupy(*ranks_);
    announce_engine(*messages_, file, options);
  }
  together(ranks_, [&] {
    backend_ = make_backend(options, ranks_);
    if (ranks_ != nullptr) check_ranks(options);
  });
  together(ranks_, [&] { backend_->join_ranks(); });
  Design made;
  together(ranks_, [&] { made = design(file, options); });
  made.kv.pages = least_of_ranks(ranks_, made.kv.pages);
  together(ranks_, [&] { load(file, options, made); });
  is_announced_ = messages_ != nullptr;
}

Engine::Design Engine::design(const ModelFile& file, const EngineOptions& options) {
  Design d;
  d.whole = read_config(file);
  const ModelConfig& config = d.whole;
  d.context = choose_context(file, config, options.context);
  load_tokenizer(file, config);
  if (config.encoder.only) {
    design_encoder(file, options, d);
    return d;
  }
  const DType kv_dtype = options.kv_dtype.value_or(backend_->default_kv_dtype());
  const int32_t block = dtype_info(kv_dtype).block_size;
  for (const LayerConfig& layer : config.layers) {
    const bool fits = layer.head_dim % block == 0 && layer.value_dim() % block == 0;
    if (fits && backend_->supports(OpId::attention, kv_dtype)) continue;
    fail_usage("`kv_type` {} does not work here (backend {}, heads of {})", dtype_name(kv_dtype), backend_->name(),
               layer.head_dim);
  }
  d.shares = split_model(file, config, ranks_ == nullptr ? 1 : ranks_->size(),
                         ranks_ == nullptr ? std::span<const int32_t>() : options.split,
                         ranks_ == nullptr ? 1 : options.pipeline);
  const ModelShare& share = d.shares[ranks_ == nullptr ? 0 : static_cast<size_t>(ranks_->rank())];
  StepLimits& limits = d.limits;
  limits = options.limits;
  // No prompt is longer than the context. Left to the backend, a step has room for one token of every sequence.
  limits.max_tokens = limits.max_tokens > 0
                          ? std::min(limits.max_tokens, d.context)
                          : std::max(std::min(backend_->preferred_step_tokens(), d.context), limits.max_sequences);
  if (options.all_logits) {
    const int64_t row_bytes = int64_t{config.vocabulary} * static_cast<int64_t>(sizeof(float));
    limits.max_logit_rows =
        static_cast<int32_t>(std::clamp<int64_t>(kAllLogitsBytes / row_bytes, 1, limits.max_tokens));
  }
  limits.max_logit_rows = std::max(limits.max_logit_rows, limits.max_sequences + draft_rows(config, limits, d.context));
  if (!options.draft.empty()) {
    d.draft_file.emplace(open_model(options.draft));
    DraftModel::check(*d.draft_file, file);
  }
  d.kv = {.layers = cache_layers(config, share),
          .dtype = kv_dtype,
          .max_positions = d.context,
          .state_slots = limits.max_sequences + Scheduler::snapshots(limits.max_sequences)};
  const uint64_t model_bytes = share.is_whole() ? file.file_bytes() : share_bytes(file, config, share);
  const uint64_t draft_bytes = d.draft_file ? d.draft_file->file_bytes() : 0;
  const uint64_t draft_page_bytes = d.draft_file ? DraftModel::page_bytes(*d.draft_file, kv_dtype) : 0;
  d.kv.pages = choose_pages(d.kv, options, *backend_, model_bytes + draft_bytes, draft_page_bytes);
  ModelNeeds needs = needs_of(file, config, share, d.kv, limits);
  needs.other_bytes += draft_bytes + draft_page_bytes * static_cast<uint64_t>(d.kv.pages);
  if (options.check_memory && backend_->cpu_numerics()) require_memory(file, needs);
  backend_->expect(needs);
  return d;
}

// An encoder has no cache and makes no logits: its memory are its weights and a step.
void Engine::design_encoder(const ModelFile& file, const EngineOptions& options, Design& d) {
  if (ranks_ != nullptr) fail_usage("\"{}\" is an embedding model: it runs on one rank", file.path());
  if (!options.draft.empty()) fail_usage("\"{}\" makes embeddings, no text: there is nothing to draft", file.path());
  d.shares = {whole_share(d.whole)};
  const ModelNeeds needs = needs_of(file, d.whole, d.shares[0], d.kv, {});
  if (options.check_memory && backend_->cpu_numerics()) require_memory(file, needs);
  backend_->expect(needs);
}

void Engine::load_tokenizer(const ModelFile& file, const ModelConfig& config) {
  // Only who has requests needs texts.
  if (ranks_ == nullptr || ranks_->is_leader()) tokenizer_ = Tokenizer::load(file);
  if (tokenizer_ != nullptr && tokenizer_->vocab_size() != config.vocabulary) {
    fail("\"{}\": {} tokens are named, but token_embd.weight has {} rows", file.path(), tokenizer_->vocab_size(),
         config.vocabulary);
  }
  constraints_ = std::make_unique<Constraints>(tokenizer_.get());
  end_tokens_ = find_end_tokens(file, tokenizer_.get());
}

void Engine::check_ranks(const EngineOptions& options) const {
  if (!backend_->supports(OpId::all_gather, DType::f32)) {
    fail_usage("`backend` {} does not split a model over ranks; choose {} or cuda", backend_->name(),
               default_backend_name());
  }
  if (options.pipeline > 1 && !backend_->cpu_numerics()) {
    fail_usage("layers are divided among ranks with CPUs alone; choose `backend` {}, or no `pipeline`",
               default_backend_name());
  }
  if (!options.page_folder.empty()) fail_usage("pages of a model that is split over ranks cannot be kept in a folder");
  if (!options.draft.empty()) fail_usage("a draft model is for a model on one rank");
}

void Engine::load(const ModelFile& file, const EngineOptions& options, const Design& d) {
  // A device says what it is; the host knows itself.
  if (options.on_info && !backend_->cpu_numerics()) {
    options.on_info(fmt::format("{}: {}", backend_->name(), backend_->description()));
  }
  const ModelShare& share = d.shares[ranks_ == nullptr ? 0 : static_cast<size_t>(ranks_->rank())];
  model_ = std::make_unique<Model>(*backend_, file, d.whole, d.context, options.on_progress, share);
  if (d.whole.encoder.only) {
    make_embedder(file);
    embedder_->prepare();
    return;
  }
  cache_ = std::make_unique<KvCache>(*backend_, d.kv);
  if (!options.page_folder.empty()) keep_pages(file, options);
  std::vector<int32_t> begins;
  for (const ModelShare& one : d.shares) {
    if (one.has_ends()) begins.push_back(one.vocabulary.begin);
  }
  begins.push_back(d.whole.vocabulary);
  decoder_ = std::make_unique<Decoder>(
      *backend_, *model_, *cache_, d.limits,
      RankLink{.ranks = ranks_, .messages = messages_.get(), .vocabulary_begins = begins, .wire = options.wire});
  if (messages_ != nullptr) {
    cache_->set_on_copy([this](int32_t from, int32_t to) { decoder_->note_copy(from, to); });
  }
  if (d.draft_file) load_draft_model(*d.draft_file, options.on_progress);
  scheduler_ = std::make_unique<Scheduler>(
      SchedulerParts{.backend = *backend_,
                     .decoder = *decoder_,
                     .cache = *cache_,
                     .vocabulary = model_->config().vocabulary,
                     .most_context = model_->config().context,
                     .end_tokens = end_tokens_,
                     .tokenizer = tokenizer_.get(),
                     .saver = saver_.get(),
                     .draft_model = draft_model_.get(),
                     .explain = [this](const auto& sequence, auto tokens) { return explain(sequence, tokens); },
                     .cost = first_guess(model_->config(), model_->weight_bytes(), *backend_),
                     .turn = &turn_},
      options.scheduler);
  driver_ = std::make_unique<Driver>(*scheduler_, options.on_step);
  if (ranks_ == nullptr) make_embedder(file);
}

void Engine::make_embedder(const ModelFile& file) {
  embedder_ =
      std::make_unique<Embedder>(*backend_, *model_, tokenizer_.get(), turn_, rerank_template(file, model_->config()));
}

void Engine::fail_no_text() const {
  fail("a model of architecture \"{}\" makes embeddings, no text", model_->config().architecture);
}

Embedder& Engine::embedder() {
  if (embedder_ == nullptr) fail_usage("a model that is split over ranks makes no embeddings");
  return *embedder_;
}

EngineStats Engine::stats() const {
  EngineStats stats = scheduler_ == nullptr ? EngineStats{} : scheduler_->stats();
  if (embedder_ == nullptr) return stats;
  stats.steps += embedder_->steps();
  stats.prompt_tokens += embedder_->tokens();
  return stats;
}

Engine::~Engine() {
  if (!is_announced_) return;
  // Whoever steps has stepped for the last time.
  driver_.reset();
  messages_->send(RankMessage::end, {});
}

void Engine::load_draft_model(const ModelFile& file, const OnProgress& on_progress) {
  const KvConfig& kv = cache_->config();
  draft_model_ = std::make_unique<DraftModel>(*backend_, file, kv.dtype, kv.max_positions, kv.pages, decoder_->limits(),
                                              model_->config().vocabulary, on_progress);
}

void Engine::keep_pages(const ModelFile& file, const EngineOptions& options) {
  if (!backend_->cpu_numerics()) fail_usage("pages in a device's memory cannot be kept in a folder; use a CPU backend");
  if (cache_->has_states()) {
    fail_usage("\"{}\" has recurrent layers, whose states are not kept: its pages cannot be kept in a folder",
               file.path());
  }
  saver_ = std::make_unique<PageSaver>(
      *cache_,
      PageStoreOptions{.folder = options.page_folder,
                       .max_bytes = options.page_folder_bytes,
                       .model = fingerprint_of(file, *backend_, cache_->config(), options.backend_options.fused),
                       .page_bytes = KvCache::page_bytes(cache_->config()),
                       .page_size = KvCache::kPageSize,
                       .vocabulary = model_->config().vocabulary});
}

std::string Engine::explain(const KvSequence& sequence, std::span<const int32_t> tokens) {
  // The other ranks would have to look, too.
  if (ranks_ != nullptr) return "the model's logits are not finite numbers: its weights are damaged or overflow";
  return explain_logits(*backend_, *model_, *cache_, sequence, tokens);
}

void Engine::check_tokens(std::span<const int32_t> ids) const {
  for (const int32_t id : ids) {
    if (id < 0 || id >= model_->config().vocabulary) {
      fail("token id {} is not in the vocabulary (0 to {})", id, model_->config().vocabulary - 1);
    }
  }
}

}  // namespace inferno
