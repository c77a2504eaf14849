#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"

namespace inferno {
namespace {

Tensor rows_of(const Tensor& x, TokenRange range) {
  return x.row_range(range.begin, range.end - range.begin);
}

BatchCapacity capacity_of(const StepLimits& limits, const KvCache& cache) {
  return {.max_tokens = limits.max_tokens,
          .max_sequences = limits.max_sequences,
          .max_logit_rows = limits.max_logit_rows,
          .max_pages = cache.max_pages()};
}

size_t matrix_bytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows * cols) * sizeof(float);
}

// The op's product alone, beside the stream.
template <typename Args>
void as_part(Args& args, const Tensor& out) {
  args.post_norm = nullptr;
  args.residual_scale = 1;
  args.residual = {};
  args.out = out;
}

}  // namespace

std::vector<KvLayerShape> cache_layers(const ModelConfig& config) {
  std::vector<KvLayerShape> shapes;
  for (const LayerConfig& layer : config.layers) {
    const bool own = layer.kv_source == kOwnCache;
    KvLayerShape& shape = shapes.emplace_back(
        KvLayerShape{.kv_heads = own ? layer.kv_heads : 0, .head_dim = layer.head_dim, .v_head_dim = layer.v_head_dim});
    shape.v_in_k = layer.mixer == Mixer::latent_attention;
    if (layer.is_recurrent()) shape.state_floats = {layer.recurrent.conv_floats(), layer.recurrent.matrix_floats()};
  }
  return shapes;
}

std::vector<KvLayerShape> cache_layers(const ModelConfig& whole, const ModelShare& share) {
  std::vector<KvLayerShape> shapes = cache_layers(config_of(whole, share));
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!share.has_layer(static_cast<int32_t>(i))) shapes[i] = {.head_dim = shapes[i].head_dim};
  }
  return shapes;
}

Decoder::Decoder(Backend& backend, const Model& model, const KvCache& cache, const StepLimits& limits,
                 const RankLink& ranks)
    : backend_(backend),
      model_(model),
      cache_(cache),
      limits_(limits),
      ranks_(ranks),
      batch_(capacity_of(limits, cache)),
      part_(model.share().stages > 1 ? capacity_of(limits, cache) : BatchCapacity()),
      samples_({.max_rows = limits.max_logit_rows,
                .vocabulary = model.config().vocabulary,
                .max_history = cache.config().max_positions}) {
  const ModelConfig& c = model.config();
  const int64_t attention_width = c.attention_width();
  batch_memory_ = backend.allocate(batch_.block().size() * sizeof(int32_t));
  x_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, c.width));
  q_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, attention_width));
  attn_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, attention_width));
  if (c.gate_width() > 0) gate_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, c.gate_width()));
  if (c.mixer_width() > 0) {
    mixer_memory_ =
        backend.allocate(matrix_bytes(limits.max_tokens, c.mixer_width()) + matrix_bytes(kMixerParts, kMixerAlignment));
  }
  if (c.layer_inputs > 0) {
    input_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, int64_t{c.layer_inputs} * c.layer_count()));
  }
  if (c.shared_experts()) shared_memory_ = backend.allocate(matrix_bytes(limits.max_tokens, c.width));
  if (model.share().has_ends()) {
    logits_memory_ = backend.allocate(matrix_bytes(limits.max_logit_rows, c.vocabulary));
  }
  if (ranks_.ranks != nullptr) prepare_ranks();
  request_memory_ = backend.allocate(static_cast<size_t>(samples_.request_bytes()));
  result_memory_ = backend.allocate(static_cast<size_t>(samples_.result_bytes()));
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
  samples_.set(std::vector<SampleRequest>(static_cast<size_t>(batch_.logit_rows()), {.top_logprobs = kMaxTopLogprobs}));
  backend_.begin_step(StepMode::plan);
  record(batch_.view(static_cast<const int32_t*>(batch_memory_.data())), {0, batch_.tokens()}, true);
  backend_.end_step();
  batch_.clear();
}

void Decoder::add(const KvSequence& sequence, int32_t first, std::span<const int32_t> tokens, int32_t logit_rows) {
  if (ranks_.messages != nullptr) note_sequence(sequence.pages(), first, tokens, logit_rows);
  add(sequence.pages(), sequence.state_slot(), first, tokens, logit_rows);
}

void Decoder::add(std::span<const int32_t> pages, int32_t state_slot, int32_t first, std::span<const int32_t> tokens,
                  int32_t logit_rows) {
  constexpr int32_t kPage = KvCache::kPageSize;
  const auto count = static_cast<int32_t>(tokens.size());
  INFERNO_CHECK(first + count <= static_cast<int32_t>(pages.size()) * kPage);
  batch_.begin_sequence(first + count, pages.data(), static_cast<int32_t>(pages.size()), state_slot);
  const Part own = model_.share().vocabulary;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t position = first + i;
    const int32_t slot = pages[static_cast<size_t>(position / kPage)] * kPage + position % kPage;
    int32_t id = tokens[static_cast<size_t>(i)];
    if (is_split()) id = id >= own.begin && id < own.begin + own.count ? id - own.begin : -1;
    batch_.add_token(id, position, slot, i >= count - logit_rows);
  }
}

void Decoder::run(std::span<const SampleRequest> requests, bool shows_logits) {
  INFERNO_CHECK(batch_.tokens() > 0);
  INFERNO_CHECK(requests.empty() || requests.size() == static_cast<size_t>(batch_.logit_rows()));
  if (ranks_.messages != nullptr) send_step(requests.empty() || shows_logits ? 0 : candidates_of(requests));
  if (!requests.empty()) {
    samples_.set(requests);
    backend_.upload(request_memory_.data(), samples_.block().data(), samples_.block().size());
  }
  execute(!requests.empty());
  if (!requests.empty()) {
    const std::span<int32_t> results = samples_.results();
    backend_.download(results.data(), result_memory_.data(), results.size_bytes());
  }
}

void Decoder::execute(bool sample) {
  if (has_stages()) return execute_parts(sample);
  backend_.upload(batch_memory_.data(), batch_.block().data(), batch_.block().size() * sizeof(int32_t));
  backend_.begin_step(StepMode::run);
  record(batch_.view(static_cast<const int32_t*>(batch_memory_.data())), batch_.wanted(), sample);
  backend_.end_step();
}

// The transformer. x [T, d] is the residual stream; every op writes only what it is given. q and what attention makes
// of it are private results: each is read by the op recorded next and by nobody else.
void Decoder::record(const StepBatch& batch, TokenRange needed, bool sample) {
  const Tensor x{x_memory_.data(), Shape(batch.tokens, model_.config().width)};
  record_layers(batch, x, needed);
  if (batch.logit_rows > 0) record_logits(batch, x, sample);
}

// All layers, or those of this rank's stage: then x comes from the stage before, and goes to the next one.
void Decoder::record_layers(const StepBatch& batch, const Tensor& x, TokenRange needed) {
  const ModelConfig& c = model_.config();
  const ModelShare& share = model_.share();
  const int64_t tokens = batch.tokens;
  const Tensor ids{const_cast<int32_t*>(batch.token_ids), Shape(tokens), DType::i32};

  share.has_ends() ? record_embedding(ids, x) : record_pass(x, share.stage - 1, share.stage);
  const Tensor inputs = record_layer_inputs(ids, x);
  for (int32_t i = share.own_layers.begin; share.has_layer(i); ++i) {
    const LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    const TokenRange range = i + 1 == c.layer_count() ? needed : TokenRange{0, batch.tokens};
    if (!record_mixer(i, batch, x, range)) return;
    const Tensor rest = rows_of(x, range);
    if (layer.mlp) layer.experts.count > 0 ? record_experts(i, rest) : record_mlp(i, rest);
    if (!inputs.empty()) record_layer_input(i, rest, rows_of(inputs, range));
  }
  if (share.stage + 1 < share.stages) record_pass(x, share.stage, share.stage + 1);
}

void Decoder::record_embedding(const Tensor& ids, const Tensor& x) {
  backend_.embed({.table = &model_.embedding(), .ids = ids, .out = x, .scale = model_.config().embedding_scale});
  if (is_split()) record_sum(x);
}

// Each rank has the logits of its part of the vocabulary; the leader draws. With stages the rows come from the last one
// to the first.
void Decoder::record_logits(const StepBatch& batch, const Tensor& stream, bool sample) {
  const ModelConfig& c = model_.config();
  Tensor rows{const_cast<int32_t*>(batch.logit_row_ids), Shape(batch.logit_rows), DType::i32};
  Tensor x = stream;
  if (has_stages()) {
    const int32_t last = model_.share().stages - 1;
    if (model_.share().stage == last) record_pass(x, last, 0, rows);
    if (!model_.share().has_ends()) return;
    x = {rows_memory_.data(), Shape(batch.logit_rows, c.width)};
    rows.data = row_ids_memory_.data();
    record_pass(x, last, 0);
  }
  const Tensor logits{logits_memory_.data(), Shape(batch.logit_rows, c.vocabulary)};
  const Tensor part =
      is_split() ? Tensor{part_memory_.data(), Shape(batch.logit_rows, model_.share().vocabulary.count)} : logits;
  backend_.logits({.x = x,
                   .rows = rows,
                   .norm = &model_.output_norm(),
                   .eps = c.norm_eps,
                   .head = &model_.head(),
                   .scale = c.logit_scale,
                   .softcap = c.logit_softcap,
                   .out = part});
  if (is_split()) {
    const Tensor begins{begins_memory_.data(), Shape(model_.share().ranks + 1), DType::i32};
    backend_.all_gather({.x = part, .begins = begins, .most = candidates_, .out = logits});
  }
  if (sample) backend_.sample(samples_.args(logits, request_memory_.data(), result_memory_.data()));
}

bool Decoder::record_mixer(int32_t index, const StepBatch& batch, const Tensor& x, TokenRange needed) {
  switch (model_.config().layers[static_cast<size_t>(index)].mixer) {
    case Mixer::attention:
      return record_attention(index, batch, x, needed);
    case Mixer::latent_attention:
      return record_latent_attention(index, batch, x, needed);
    case Mixer::none:
      return needed.begin < batch.tokens;
    default:
      return record_recurrent(index, batch, x, needed);
  }
}

// Norm, project, rotate, store K and V; attend; project back onto the residual stream.
bool Decoder::record_attention(int32_t index, const StepBatch& batch, const Tensor& x, TokenRange needed) {
  const ModelConfig& c = model_.config();
  const LayerConfig& layer = c.layers[static_cast<size_t>(index)];
  const LayerWeights& w = model_.layer(index);
  const int64_t tokens = batch.tokens;
  const KvLayerView kv = cache_.layer(layer.kv_source == kOwnCache ? index : layer.kv_source);
  const Tensor q{q_memory_.data(), Shape(tokens, layer.attention_width())};
  const Tensor attended{attn_memory_.data(), Shape(tokens, layer.output_width())};
  const Tensor gate = w.w_gate == nullptr ? Tensor{} : Tensor{gate_memory_.data(), Shape(tokens, layer.gate_width())};
  const bool ends_here = needed.begin == tokens;

  backend_.qkv_rope_store({.x = x,
                           .norm = w.attn_norm.get(),
                           .eps = c.norm_eps,
                           .w = {w.wq.get(), w.wk.get(), w.wv.get()},
                           .bias = {w.bq.get(), w.bk.get(), w.bv.get()},
                           .q_norm = w.q_norm.get(),
                           .k_norm = w.k_norm.get(),
                           .v_norm = layer.v_norm,
                           .rope = model_.rope(index),
                           .q_rope = model_.query_rope(index),
                           .w_gate = w.w_gate.get(),
                           .kv = kv,
                           .batch = batch,
                           .private_result = !ends_here,
                           .q = q,
                           .gate = gate});
  if (ends_here) return false;
  const float scale =
      layer.attention_scale != 0 ? layer.attention_scale : 1.0F / std::sqrt(static_cast<float>(layer.head_dim));
  backend_.attention({.q = q,
                      .kv = kv,
                      .batch = batch,
                      .scale = scale,
                      .causal = layer.causal,
                      .window = layer.window,
                      .softcap = layer.softcap,
                      .sinks = w.sinks.get(),
                      .gate = gate,
                      .gate_activation = layer.gate_activation,
                      .private_result = true,
                      .out = attended});
  record_output(index, attended, x, needed);
  return true;
}

// The projection back onto the residual stream, of tokens that are needed. Over ranks x becomes the sum of all parts,
// of which the leader's has the residual.
void Decoder::record_output(int32_t index, const Tensor& y, const Tensor& x, TokenRange needed) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.layer(index);
  const Tensor rest_x = rows_of(x, needed);
  const Tensor rest_y = rows_of(y, needed);
  if (is_split() && w.attn_post_norm != nullptr) {
    const Tensor sum{sum_memory_.data(), rest_x.shape};
    backend_.linear({.x = rest_y, .w = {w.wo.get()}, .bias = {w.bo.get()}, .out = {sum}});
    record_normed_sum(*w.attn_post_norm, sum, rest_x);
    return;
  }
  backend_.linear({.x = rest_y,
                   .w = {w.wo.get()},
                   .bias = {w.bo.get()},
                   .residual = adds_residual() ? rest_x : Tensor{},
                   .post_norm = w.attn_post_norm.get(),
                   .eps = c.norm_eps,
                   .residual_scale = c.residual_scale,
                   .out = {rest_x}});
  if (is_split()) record_sum(rest_x);
}

// Norm, gate and up, activation, down, onto the residual stream.
void Decoder::record_mlp(int32_t index, const Tensor& x) {
  const ModelConfig& c = model_.config();
  const LayerConfig& layer = c.layers[static_cast<size_t>(index)];
  const LayerWeights& w = model_.layer(index);
  const bool norms_sum = is_split() && w.ffn_post_norm != nullptr;
  GatedMlpArgs args{.x = x,
                    .norm = w.ffn_norm.get(),
                    .eps = c.norm_eps,
                    .gate = w.gate.get(),
                    .up = w.up.get(),
                    .down = w.down.get(),
                    .bias = {w.gate_bias.get(), w.up_bias.get(), w.down_bias.get()},
                    .activation = layer.activation,
                    .post_norm = w.ffn_post_norm.get(),
                    .residual_scale = c.residual_scale,
                    .out_scale = c.layer_inputs > 0 ? 1 : layer.output_scale,
                    .residual = adds_residual() ? x : Tensor{},
                    .out = x};
  if (norms_sum) as_part(args, {sum_memory_.data(), x.shape});
  backend_.gated_mlp(args);
  if (norms_sum) {
    record_normed_sum(*w.ffn_post_norm, args.out, x);
  } else if (is_split()) {
    record_sum(x);
  }
}

// The expert of all tokens apart from the stream; then the router's experts, and both onto the residual stream.
void Decoder::record_experts(int32_t index, const Tensor& x) {
  const ModelConfig& c = model_.config();
  const LayerConfig& layer = c.layers[static_cast<size_t>(index)];
  const LayerWeights& w = model_.layer(index);
  Tensor shared;
  if (layer.experts.shared_ffn > 0) {
    shared = {shared_memory_.data(), x.shape};
    backend_.gated_mlp({.x = x,
                        .norm = w.ffn_norm.get(),
                        .eps = c.norm_eps,
                        .gate = w.gate.get(),
                        .up = w.up.get(),
                        .down = w.down.get(),
                        .activation = layer.activation,
                        .post_norm = w.shared_post_norm.get(),
                        .out = shared});
  }
  const bool norms_sum = is_split() && w.ffn_post_norm != nullptr;
  MoeMlpArgs args{.x = x,
                  .norm = layer.experts.beside_mlp ? w.experts_norm.get() : w.ffn_norm.get(),
                  .eps = c.norm_eps,
                  .router_norm = w.router_norm.get(),
                  .router = w.router.get(),
                  .router_bias = w.router_bias.get(),
                  .selection_bias = w.selection_bias.get(),
                  .routing = layer.experts.routing,
                  .expert_scale = w.expert_scale.get(),
                  .gate = w.gate_exps.get(),
                  .up = w.up_exps.get(),
                  .down = w.down_exps.get(),
                  .bias = {w.gate_exps_bias.get(), w.up_exps_bias.get(), w.down_exps_bias.get()},
                  .activation = layer.activation,
                  .experts_norm = w.experts_post_norm.get(),
                  .shared = shared,
                  .shared_gate = w.shared_gate.get(),
                  .post_norm = w.ffn_post_norm.get(),
                  .residual_scale = c.residual_scale,
                  .out_scale = c.layer_inputs > 0 ? 1 : layer.output_scale,
                  .residual = adds_residual() ? x : Tensor{},
                  .out = x};
  if (norms_sum) as_part(args, {sum_memory_.data(), x.shape});
  backend_.moe_mlp(args);
  if (norms_sum) {
    record_normed_sum(*w.ffn_post_norm, args.out, x);
  } else if (is_split()) {
    record_sum(x);
  }
}

// The mean of a token's row of a table and of a projection of its embedding, both scaled to the same size: their sum
// over sqrt(2). The projection is divided by sqrt(d) before its norm, which is the norm with an eps larger by d.
Tensor Decoder::record_layer_inputs(const Tensor& ids, const Tensor& x) {
  const ModelConfig& c = model_.config();
  if (c.layer_inputs == 0) return {};
  const LayerInputWeights& w = model_.layer_inputs();
  const Tensor inputs{input_memory_.data(), Shape(x.rows(), int64_t{c.layer_inputs} * c.layer_count())};
  constexpr auto kMean = static_cast<float>(1 / std::numbers::sqrt2);
  backend_.embed({.table = w.table.get(),
                  .ids = ids,
                  .out = inputs,
                  .scale = kMean * std::sqrt(static_cast<float>(c.layer_inputs))});
  backend_.linear({.x = x,
                   .w = {w.proj.get()},
                   .residual = inputs,
                   .post_norm = w.norm.get(),
                   .eps = c.norm_eps * static_cast<float>(c.width),
                   .residual_scale = kMean,
                   .out = {inputs}});
  return inputs;
}

// Gate the layer's own input by the stream, and project it back.
void Decoder::record_layer_input(int32_t index, const Tensor& x, const Tensor& inputs) {
  const ModelConfig& c = model_.config();
  const LayerConfig& layer = c.layers[static_cast<size_t>(index)];
  const LayerWeights& w = model_.layer(index);
  backend_.layer_input({.x = x,
                        .gate = w.input_gate.get(),
                        .activation = layer.activation,
                        .inputs = inputs,
                        .first_column = int64_t{index} * c.layer_inputs,
                        .proj = w.input_proj.get(),
                        .post_norm = w.input_norm.get(),
                        .eps = c.norm_eps,
                        .out_scale = layer.output_scale,
                        .out = x});
}

void Decoder::download_logits(std::span<float> out) {
  backend_.download(out.data(), logits_memory_.data(), out.size_bytes());
}

}  // namespace inferno
