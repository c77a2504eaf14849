#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace inferno {
namespace {

BatchCapacity capacity_of(const StepLimits& limits, const KvCache& cache) {
  return {.max_tokens = limits.max_tokens,
          .max_sequences = limits.max_sequences,
          .max_logit_rows = limits.max_logit_rows,
          .max_pages = cache.max_pages()};
}

size_t matrix_bytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * cols) * sizeof(float);
}

constexpr size_t kHistoryBytes = kSampleHistory * sizeof(int32_t);

}  // namespace

Decoder::Decoder(Backend& backend, const Model& model, KvCache& cache, const StepLimits& limits)
    : backend_(backend), model_(model), cache_(cache), limits_(limits), batch_(capacity_of(limits, cache)) {
  const ModelConfig& c = model.config();
  const auto rows = static_cast<size_t>(limits.max_logit_rows);
  const int64_t attention_width = int64_t{c.q_heads} * c.head_dim;
  batch_memory_ = backend.allocate(batch_.block().size() * sizeof(int32_t));
  x_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, c.width));
  q_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, attention_width));
  attn_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, attention_width));
  logits_memory_ = backend.allocate(matrix_bytes(limits.max_logit_rows, c.vocabulary));
  request_memory_ = backend.allocate(rows * (sizeof(SampleParams) + kHistoryBytes));
  sampled_memory_ = backend.allocate(rows * sizeof(int32_t));
  requests_.resize(rows * (sizeof(SampleParams) + kHistoryBytes));
  sampled_.resize(rows);
  plan();
}

// Records the largest step there can be, so that the backend sets aside all the scratch memory steps will need: one
// sequence at the end of its context, and others with one token each where the context alone is shorter than a step. As
// many tokens as can want logits.
void Decoder::plan() {
  const int32_t positions = cache_.config().max_positions;
  const int32_t tokens = std::min(limits_.max_tokens, positions);
  const std::vector<int32_t> pages(static_cast<size_t>(cache_.max_pages()), 0);
  batch_.clear();
  for (int32_t i = 0; i < limits_.max_tokens; ++i) {
    if (i == 0 || i >= tokens) batch_.begin_sequence(positions, pages.data(), cache_.max_pages());
    const int32_t position = i < tokens ? positions - tokens + i : positions - 1;
    batch_.add_token(0, position, 0, i >= limits_.max_tokens - std::min(limits_.max_tokens, limits_.max_logit_rows));
  }
  backend_.upload(batch_memory_.data(), batch_.block().data(), batch_.block().size() * sizeof(int32_t));
  backend_.begin_step(StepMode::plan);
  record(batch_.view(static_cast<const int32_t*>(batch_memory_.data())), 0, true);
  backend_.end_step();
  batch_.clear();
}

void Decoder::add(int32_t sequence, int32_t first, std::span<const int32_t> tokens, int32_t logit_rows) {
  const auto count = static_cast<int32_t>(tokens.size());
  INFERNO_CHECK(first + count <= cache_.length(sequence));
  const std::span<const int32_t> pages = cache_.pages(sequence);
  batch_.begin_sequence(first + count, pages.data(), static_cast<int32_t>(pages.size()));
  for (int32_t i = 0; i < count; ++i) {
    batch_.add_token(tokens[static_cast<size_t>(i)], first + i, cache_.slot(sequence, first + i),
                     i >= count - logit_rows);
  }
}

void Decoder::upload_requests(std::span<const SampleRequest> requests) {
  const size_t history_begin = static_cast<size_t>(limits_.max_logit_rows) * sizeof(SampleParams);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::span<const int32_t> history =
        requests[i].history.last(std::min<size_t>(requests[i].history.size(), kSampleHistory));
    SampleParams params = requests[i].params;
    params.history_length = static_cast<int32_t>(history.size());
    std::memcpy(requests_.data() + i * sizeof params, &params, sizeof params);
    if (!history.empty()) {
      std::memcpy(requests_.data() + history_begin + i * kHistoryBytes, history.data(), history.size_bytes());
    }
  }
  backend_.upload(request_memory_.data(), requests_.data(), requests_.size());
}

void Decoder::run(std::span<const SampleRequest> requests) {
  INFERNO_CHECK(batch_.tokens() > 0);
  INFERNO_CHECK(requests.empty() || requests.size() == static_cast<size_t>(batch_.logit_rows()));
  backend_.upload(batch_memory_.data(), batch_.block().data(), batch_.block().size() * sizeof(int32_t));
  if (!requests.empty()) upload_requests(requests);
  // The logits of one sequence are those of its last tokens.
  const int32_t unwanted = batch_.sequences() == 1 ? batch_.tokens() - batch_.logit_rows() : 0;
  backend_.begin_step(StepMode::run);
  record(batch_.view(static_cast<const int32_t*>(batch_memory_.data())), unwanted, !requests.empty());
  backend_.end_step();
  if (!requests.empty()) {
    backend_.download(sampled_.data(), sampled_memory_.data(), requests.size() * sizeof(int32_t));
  }
}

// The transformer. x [T, d] is the residual stream; every op writes only what it is given. q and what attention makes
// of it are private results: each is read by the op recorded next and by nobody else. After the last layer's keys and
// values the first `unwanted` tokens are needed no more.
void Decoder::record(const StepBatch& batch, int32_t unwanted, bool sample) {
  const ModelConfig& c = model_.config();
  const int64_t tokens = batch.tokens;
  const int64_t attention_width = int64_t{c.q_heads} * c.head_dim;
  const Tensor ids{const_cast<int32_t*>(batch.token_ids), Shape(tokens), DType::i32};
  const Tensor x{x_memory_.data(), Shape(tokens, c.width)};
  const Tensor q{q_memory_.data(), Shape(tokens, attention_width)};
  const Tensor attended{attn_memory_.data(), Shape(tokens, attention_width)};

  backend_.embed({.table = &model_.embedding(), .ids = ids, .out = x});

  for (int32_t i = 0; i < c.layers; ++i) {
    const LayerWeights& w = model_.layer(i);
    const KvLayerView kv = cache_.layer(i);
    const bool last = i + 1 == c.layers;
    const bool ends_here = last && unwanted == tokens;

    // Attention block: norm, project, rotate, store K and V; attend; project back onto the residual stream.
    backend_.qkv_rope_store({.x = x,
                             .norm = w.attn_norm.get(),
                             .eps = c.norm_eps,
                             .w = {w.wq.get(), w.wk.get(), w.wv.get()},
                             .bias = {w.bq.get(), w.bk.get(), w.bv.get()},
                             .q_norm = w.q_norm.get(),
                             .k_norm = w.k_norm.get(),
                             .rope = model_.rope(),
                             .kv = kv,
                             .batch = batch,
                             .private_result = !ends_here,
                             .q = q});
    if (ends_here) return;
    backend_.attention({.q = q,
                        .kv = kv,
                        .batch = batch,
                        .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
                        .private_result = true,
                        .out = attended});
    const Tensor rest = last ? x.row_range(unwanted, tokens - unwanted) : x;
    const Tensor rest_attended = last ? attended.row_range(unwanted, tokens - unwanted) : attended;
    backend_.linear({.x = rest_attended, .w = {w.wo.get()}, .residual = rest, .out = {rest}});

    // Feed-forward block: norm, gate and up, SwiGLU, down, onto the residual stream.
    backend_.gated_mlp({.x = rest,
                        .norm = w.ffn_norm.get(),
                        .eps = c.norm_eps,
                        .gate = w.gate.get(),
                        .up = w.up.get(),
                        .down = w.down.get(),
                        .residual = rest,
                        .out = rest});
  }

  if (batch.logit_rows == 0) return;
  const Tensor rows{const_cast<int32_t*>(batch.logit_row_ids), Shape(batch.logit_rows), DType::i32};
  const Tensor logits{logits_memory_.data(), Shape(batch.logit_rows, c.vocabulary)};
  backend_.logits(
      {.x = x, .rows = rows, .norm = &model_.output_norm(), .eps = c.norm_eps, .head = &model_.head(), .out = logits});
  if (!sample) return;
  auto* params = static_cast<std::byte*>(request_memory_.data());
  auto* history = params + static_cast<size_t>(limits_.max_logit_rows) * sizeof(SampleParams);
  backend_.sample({.logits = logits,
                   .params = {params, Shape(batch.logit_rows, sizeof(SampleParams) / 4), DType::i32},
                   .history = {history, Shape(batch.logit_rows, kSampleHistory), DType::i32},
                   .out = {sampled_memory_.data(), Shape(batch.logit_rows), DType::i32}});
}

void Decoder::download_logits(std::span<float> out) {
  backend_.download(out.data(), logits_memory_.data(), out.size_bytes());
}

}  // namespace inferno
