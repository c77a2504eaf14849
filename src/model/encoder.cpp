#include "model/encoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kv/kv_cache.h"

namespace inferno {
namespace {

constexpr int32_t kPage = KvCache::kPageSize;

// Every text may leave a part of its last page empty.
int32_t pages_of(const EncoderLimits& limits) {
  return KvCache::pages_for(limits.max_tokens) + limits.max_texts;
}

BatchCapacity capacity_of(const EncoderLimits& limits) {
  return {.max_tokens = limits.max_tokens,
          .max_sequences = limits.max_texts,
          .max_logit_rows = 1,
          .max_pages = KvCache::pages_for(limits.max_tokens)};
}

void check_layers(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    const bool plain = layer.mixer == Mixer::attention && layer.mlp && layer.experts.count == 0 &&
                       layer.kv_source == kOwnCache && layer.output_gate == OutputGate::none &&
                       config.layer_inputs == 0;
    if (!plain) fail("models of architecture \"{}\" make text but no embeddings here", config.architecture);
  }
}

// The widest of what goes into or out of the layers after the pooling.
int64_t pooled_width(const ModelConfig& c) {
  return std::max({c.width, c.encoder.dense[0], c.encoder.dense[1], c.encoder.classes});
}

}  // namespace

Encoder::Encoder(Backend& backend, const Model& model, const EncoderLimits& limits)
    : backend_(backend),
      model_(model),
      limits_(limits),
      batch_(capacity_of(limits)),
      pages_(static_cast<size_t>(KvCache::pages_for(limits.max_tokens))) {
  const ModelConfig& c = model.config();
  check_layers(c);
  const auto floats = [&](int64_t rows, int64_t cols) {
    return backend.allocate(static_cast<size_t>(rows * cols) * sizeof(float));
  };
  batch_memory_ = backend.allocate(batch_.block().size() * sizeof(int32_t));
  types_memory_ = floats(limits.max_tokens, 1);
  x_memory_ = floats(limits.max_tokens, c.width);
  h_memory_ = floats(limits.max_tokens, c.width);
  q_memory_ = floats(limits.max_tokens, c.attention_width());
  attn_memory_ = floats(limits.max_tokens, c.attention_width());
  int64_t kv_width = 0;
  for (const LayerConfig& layer : c.layers) kv_width = std::max(kv_width, layer.kv_width() + layer.value_width());
  kv_memory_ = backend.allocate_cache(0, static_cast<size_t>(pages_of(limits) * kPage * kv_width) * sizeof(float));
  pooled_memory_ = floats(2 * int64_t{limits.max_texts}, pooled_width(c));
  plan();
}

KvLayerView Encoder::memory_of(const LayerConfig& layer) const {
  KvLayerView view{.k = kv_memory_.data(),
                   .pages = pages_of(limits_),
                   .page_size = kPage,
                   .kv_heads = layer.kv_heads,
                   .head_dim = layer.head_dim,
                   .v_head_dim = layer.v_head_dim};
  view.v = static_cast<std::byte*>(view.k) + view.pages * view.page_bytes();
  return view;
}

void Encoder::clear() {
  batch_.clear();
  types_.clear();
  next_page_ = 0;
}

bool Encoder::add(std::span<const int32_t> ids, int32_t second) {
  const auto count = static_cast<int32_t>(ids.size());
  if (batch_.tokens() + count > limits_.max_tokens || batch_.sequences() == limits_.max_texts) return false;
  const int32_t pages = KvCache::pages_for(count);
  for (int32_t i = 0; i < pages; ++i) pages_[static_cast<size_t>(i)] = next_page_ + i;
  batch_.begin_sequence(count, pages_.data(), pages);
  for (int32_t i = 0; i < count; ++i) {
    batch_.add_token(ids[static_cast<size_t>(i)], i, next_page_ * kPage + i, false);
    types_.push_back(i >= second ? 1 : 0);
  }
  next_page_ += pages;
  return true;
}

// One text that fills the step needs the most scratch memory.
void Encoder::plan() {
  const std::vector<int32_t> ids(static_cast<size_t>(limits_.max_tokens), 0);
  clear();
  INFERNO_CHECK(add(ids, limits_.max_tokens));
  backend_.upload(batch_memory_.data(), batch_.block().data(), batch_.block().size() * sizeof(int32_t));
  backend_.begin_step(StepMode::plan);
  record(batch_.view(static_cast<const int32_t*>(batch_memory_.data())));
  backend_.end_step();
  clear();
}

void Encoder::run() {
  INFERNO_CHECK(batch_.tokens() > 0);
  backend_.upload(batch_memory_.data(), batch_.block().data(), batch_.block().size() * sizeof(int32_t));
  backend_.upload(types_memory_.data(), types_.data(), types_.size() * sizeof(int32_t));
  backend_.begin_step(StepMode::run);
  record(batch_.view(static_cast<const int32_t*>(batch_memory_.data())));
  backend_.end_step();
  rows_.resize(static_cast<size_t>(batch_.tokens()) * static_cast<size_t>(model_.config().width));
  backend_.download(rows_.data(), x_memory_.data(), rows_.size() * sizeof(float));
}

void Encoder::record(const StepBatch& batch) {
  const ModelConfig& c = model_.config();
  const EncoderWeights& w = model_.encoder();
  const auto ints = [&](const void* data) { return Tensor{const_cast<void*>(data), Shape(batch.tokens), DType::i32}; };
  const Tensor x{x_memory_.data(), Shape(batch.tokens, c.width)};
  const Tensor h{h_memory_.data(), x.shape};
  backend_.embed({.table = &model_.embedding(), .ids = ints(batch.token_ids), .out = x, .scale = c.embedding_scale});
  if (w.types != nullptr) {
    backend_.embed({.table = w.types.get(), .ids = ints(types_memory_.data()), .out = h});
    backend_.add({.a = x, .b = h, .out = x});
  }
  if (w.positions != nullptr) {
    backend_.embed({.table = w.positions.get(), .ids = ints(batch.pos), .out = h});
    backend_.add({.a = x, .b = h, .out = x});
  }
  if (w.embedding_norm != nullptr) record_norm(x, w.embedding_norm.get(), w.embedding_bias.get(), x);
  for (int32_t i = 0; i < c.layer_count(); ++i) record_layer(i, batch, x);
  if (c.encoder.output_norm) record_norm(x, &model_.output_norm(), nullptr, x);
}

void Encoder::record_norm(const Tensor& x, const Weight* weight, const Weight* bias, const Tensor& out) {
  const ModelConfig& c = model_.config();
  if (c.encoder.layer_norms) {
    backend_.layer_norm({.x = x, .weight = weight, .bias = bias, .eps = c.norm_eps, .out = out});
  } else {
    backend_.rms_norm({.x = x, .weight = weight, .eps = c.norm_eps, .out = out});
  }
}

// Attention and the MLP, each added to the residual stream x: like the decoder's, where norms do not subtract the mean;
// where they do, they are ops of their own.
void Encoder::record_layer(int32_t index, const StepBatch& batch, const Tensor& x) {
  const ModelConfig& c = model_.config();
  const LayerConfig& layer = c.layers[static_cast<size_t>(index)];
  const LayerWeights& w = model_.layer(index);
  const bool apart = c.encoder.layer_norms;
  const Tensor h{h_memory_.data(), x.shape};
  const auto input = [&](const Weight* norm) {
    if (!apart || norm == nullptr) return x;
    record_norm(x, norm, nullptr, h);
    return h;
  };
  const Tensor q{q_memory_.data(), Shape(x.rows(), layer.attention_width())};
  const Tensor attended{attn_memory_.data(), Shape(x.rows(), layer.output_width())};
  const KvLayerView kv = memory_of(layer);
  const float scale =
      layer.attention_scale != 0 ? layer.attention_scale : 1.0F / std::sqrt(static_cast<float>(layer.head_dim));
  backend_.qkv_rope_store({.x = input(w.attn_norm.get()),
                           .norm = apart ? nullptr : w.attn_norm.get(),
                           .eps = c.norm_eps,
                           .w = {w.wq.get(), w.wk.get(), w.wv.get()},
                           .bias = {w.bq.get(), w.bk.get(), w.bv.get()},
                           .q_norm = w.q_norm.get(),
                           .k_norm = w.k_norm.get(),
                           .v_norm = layer.v_norm,
                           .rope = model_.rope(index),
                           .q_rope = model_.query_rope(index),
                           .kv = kv,
                           .batch = batch,
                           .private_result = true,
                           .q = q});
  backend_.attention({.q = q,
                      .kv = kv,
                      .batch = batch,
                      .scale = scale,
                      .causal = layer.causal,
                      .window = layer.window,
                      .softcap = layer.softcap,
                      .sinks = w.sinks.get(),
                      .private_result = true,
                      .out = attended});
  backend_.linear({.x = attended,
                   .w = {w.wo.get()},
                   .bias = {w.bo.get()},
                   .residual = x,
                   .post_norm = w.attn_post_norm.get(),
                   .eps = c.norm_eps,
                   .residual_scale = c.residual_scale,
                   .out = {x}});
  if (w.attn_sum_norm != nullptr) record_norm(x, w.attn_sum_norm.get(), w.attn_sum_norm_bias.get(), x);
  backend_.gated_mlp({.x = input(w.ffn_norm.get()),
                      .norm = apart ? nullptr : w.ffn_norm.get(),
                      .eps = c.norm_eps,
                      .gate = w.gate.get(),
                      .up = w.up.get(),
                      .down = w.down.get(),
                      .bias = {w.gate_bias.get(), w.up_bias.get(), w.down_bias.get()},
                      .activation = layer.activation,
                      .post_norm = w.ffn_post_norm.get(),
                      .residual_scale = c.residual_scale,
                      .out_scale = layer.output_scale,
                      .residual = x,
                      .out = x});
  if (w.ffn_sum_norm != nullptr) record_norm(x, w.ffn_sum_norm.get(), w.ffn_sum_norm_bias.get(), x);
}

std::vector<float> Encoder::multiply(std::span<const float> x, const Weight& w, const Weight* bias) {
  const int64_t n = static_cast<int64_t>(x.size()) / w.cols();
  INFERNO_CHECK(n <= limits_.max_texts);
  auto* memory = static_cast<float*>(pooled_memory_.data());
  const Tensor in{memory, Shape(n, w.cols())};
  const Tensor out{memory + int64_t{limits_.max_texts} * pooled_width(model_.config()), Shape(n, w.rows())};
  backend_.upload(in.data, x.data(), x.size_bytes());
  const LinearArgs args{.x = in, .w = {&w}, .bias = {bias}, .out = {out}};
  for (const StepMode mode : {StepMode::plan, StepMode::run}) {
    backend_.begin_step(mode);
    backend_.linear(args);
    backend_.end_step();
  }
  std::vector<float> result(static_cast<size_t>(out.elements()));
  backend_.download(result.data(), out.data, result.size() * sizeof(float));
  return result;
}

}  // namespace inferno
