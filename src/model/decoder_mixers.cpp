// The layers that mix positions otherwise than by plain attention, one function per kind.
#include "base/checked.h"
#include "model/decoder.h"

namespace inferno {

class Decoder::Rows {
 public:
  Rows(const Buffer& memory, int64_t tokens) : memory_(static_cast<float*>(memory.data())), tokens_(tokens) {}
  // Each begins where vector loads of devices may.
  Tensor take(int64_t cols) {
    const Tensor part{memory_, Shape(tokens_, cols)};
    memory_ += round_up(part.elements(), kMixerAlignment);
    return part;
  }

 private:
  float* memory_;
  int64_t tokens_;
};

// Norm; queries, in one product or two, and the row that all heads share; the row into the cache, queries into its
// space; attend; back out of that space, head by head, and onto the residual stream.
bool Decoder::record_latent_attention(int32_t index, const StepBatch& batch, const Tensor& x, TokenRange needed) {
  const ModelConfig& c = model_.config();
  const LayerConfig& layer = c.layers[static_cast<size_t>(index)];
  const LatentConfig& l = layer.latent;
  const LayerWeights& w = model_.layer(index);
  Rows rows(mixer_memory_, batch.tokens);
  const Tensor h = rows.take(c.width);
  const Tensor latent = rows.take(l.rank + l.rotated);
  const Tensor heads = rows.take(int64_t{layer.q_heads} * (l.kept + l.rotated));
  backend_.rms_norm({.x = x, .weight = w.attn_norm.get(), .eps = c.norm_eps, .out = h});
  if (l.query_rank > 0) {
    const Tensor narrow = rows.take(l.query_rank);
    backend_.linear({.x = h, .w = {w.q_a.get(), w.kv_a.get()}, .out = {narrow, latent}});
    backend_.rms_norm({.x = narrow, .weight = w.q_a_norm.get(), .eps = c.norm_eps, .out = narrow});
    backend_.linear({.x = narrow, .w = {w.q_b.get()}, .out = {heads}});
  } else {
    backend_.linear({.x = h, .w = {w.wq.get(), w.kv_a.get()}, .out = {heads, latent}});
  }
  const KvLayerView kv = cache_.layer(index);
  const Tensor q{q_memory_.data(), Shape(batch.tokens, layer.attention_width())};
  backend_.latent_store({.heads = heads,
                         .latent = latent,
                         .norm = w.kv_a_norm.get(),
                         .eps = c.norm_eps,
                         .k_b = w.k_b.get(),
                         .rope = model_.rope(index),
                         .kv = kv,
                         .batch = batch,
                         .q = q});
  if (needed.begin == batch.tokens) return false;
  const Tensor attended{attn_memory_.data(), Shape(batch.tokens, layer.output_width())};
  const Tensor out = rows.take(int64_t{layer.q_heads} * l.value_dim);
  backend_.attention({.q = q, .kv = kv, .batch = batch, .scale = layer.attention_scale, .out = attended});
  backend_.head_linear({.x = attended, .w = w.v_b.get(), .out = out});
  record_output(index, out, x, needed);
  return true;
}

// Norm; what the layer makes of it with its states, which go on with every token whatever is needed of the results;
// project back onto the residual stream.
bool Decoder::record_recurrent(int32_t index, const StepBatch& batch, const Tensor& x, TokenRange needed) {
  const ModelConfig& c = model_.config();
  const Mixer mixer = c.layers[static_cast<size_t>(index)].mixer;
  Rows rows(mixer_memory_, batch.tokens);
  const Tensor h = rows.take(c.width);
  backend_.rms_norm({.x = x, .weight = model_.layer(index).attn_norm.get(), .eps = c.norm_eps, .out = h});
  const Tensor y = mixer == Mixer::short_conv  ? record_short_conv(index, batch, h, rows)
                   : mixer == Mixer::delta_net ? record_delta_net(index, batch, h, rows)
                                               : record_mamba2(index, batch, h, rows);
  if (needed.begin == batch.tokens) return false;
  record_output(index, y, x, needed);
  return true;
}

// A convolution between two gates.
Tensor Decoder::record_short_conv(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows) {
  const LayerWeights& w = model_.layer(index);
  const int32_t channels = model_.config().layers[static_cast<size_t>(index)].recurrent.conv_channels;
  const Tensor u = rows.take(channels);
  const Tensor factor = rows.take(channels);
  const Tensor gate = rows.take(channels);
  backend_.linear({.x = h, .w = {w.conv_in.get(), w.conv_factor.get(), w.conv_gate.get()}, .out = {u, factor, gate}});
  backend_.short_conv({.x = u,
                       .factor = factor,
                       .weight = w.conv.get(),
                       .gate = gate,
                       .state = cache_.states(index, 0),
                       .batch = batch,
                       .out = u});
  return u;
}

// A convolution and the delta rule over what comes out of it.
Tensor Decoder::record_delta_net(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows) {
  const ModelConfig& c = model_.config();
  const RecurrentConfig& r = c.layers[static_cast<size_t>(index)].recurrent;
  const LayerWeights& w = model_.layer(index);
  const Tensor u = rows.take(r.conv_channels);
  const Tensor z = rows.take(r.value_width());
  const Tensor beta = rows.take(r.v_heads);
  const Tensor alpha = rows.take(r.v_heads);
  const Tensor out = rows.take(r.value_width());
  backend_.linear({.x = h, .w = {w.conv_in.get(), w.z.get()}, .out = {u, z}});
  backend_.linear({.x = h, .w = {w.beta.get(), w.alpha.get()}, .out = {beta, alpha}});
  backend_.short_conv(
      {.x = u, .weight = w.conv.get(), .silu = true, .state = cache_.states(index, 0), .batch = batch, .out = u});
  backend_.delta_net({.qkv = u,
                      .z = z,
                      .beta = beta,
                      .alpha = alpha,
                      .a = w.decay.get(),
                      .dt = w.dt.get(),
                      .norm = w.value_norm.get(),
                      .eps = c.norm_eps,
                      .k_heads = r.k_heads,
                      .grouped = r.grouped,
                      .state = cache_.states(index, 1),
                      .batch = batch,
                      .out = out});
  return out;
}

// A convolution and the scan over what comes out of it.
Tensor Decoder::record_mamba2(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows) {
  const ModelConfig& c = model_.config();
  const RecurrentConfig& r = c.layers[static_cast<size_t>(index)].recurrent;
  const LayerWeights& w = model_.layer(index);
  const Tensor u = rows.take(r.conv_channels);
  const Tensor z = rows.take(r.value_width());
  const Tensor dt = rows.take(r.v_heads);
  const Tensor out = rows.take(r.value_width());
  backend_.linear({.x = h, .w = {w.conv_in.get(), w.z.get(), w.alpha.get()}, .out = {u, z, dt}});
  backend_.short_conv({.x = u,
                       .weight = w.conv.get(),
                       .bias = w.conv_bias.get(),
                       .silu = true,
                       .state = cache_.states(index, 0),
                       .batch = batch,
                       .out = u});
  backend_.mamba2({.xbc = u,
                   .z = z,
                   .dt = dt,
                   .a = w.decay.get(),
                   .dt_bias = w.dt.get(),
                   .skip = w.skip.get(),
                   .norm = w.value_norm.get(),
                   .eps = c.norm_eps,
                   .groups = r.k_heads,
                   .state = cache_.states(index, 1),
                   .batch = batch,
                   .out = out});
  return out;
}

}  // namespace inferno
