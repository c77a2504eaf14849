// Inputs of the fused ops for shapes of one's own.
#include <algorithm>
#include <cmath>

#include "verify/case_data.h"
#include "verify/op_cases.h"

namespace inferno {
namespace {

int32_t longest(const AttentionShape& shape) {
  int32_t most = 0;
  for (const SequenceShape& s : shape.sequences) most = std::max(most, s.cached + s.queries);
  return most;
}

AttentionArgs attention_args(const AttentionShape& shape, const Tensor& q, const KvLayerView& view,
                             const StepBatch& batch, CaseData& d) {
  const int64_t width = int64_t{shape.q_heads} * view.value_dim();
  AttentionArgs args{.q = q,
                     .kv = view,
                     .batch = batch,
                     .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
                     .causal = shape.causal,
                     .window = shape.window,
                     .softcap = shape.softcap,
                     .gate_activation = shape.gate_activation,
                     .out = d.output({batch.tokens, width})};
  if (shape.sinks) args.sinks = d.vector("sinks", shape.q_heads);
  if (shape.gate) args.gate = d.normals({batch.tokens, shape.gate_per_head ? shape.q_heads : width});
  return args;
}

}  // namespace

OpImage attention_case(const AttentionShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  const auto [view, batch] = d.cache(shape, true);
  image.add(attention_args(shape, d.normals({batch.tokens, int64_t{shape.q_heads} * shape.head_dim}), view, batch, d));
  return image;
}

OpImage linear_case(const LinearShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  LinearArgs args{.x = d.normals({shape.tokens, shape.k})};
  const int64_t out_rows = shape.rows.empty() ? shape.tokens : static_cast<int64_t>(shape.rows.size());
  for (size_t i = 0; i < shape.n.size(); ++i) {
    args.w[i] = d.matrix("w", shape.weight, shape.n[i], shape.k);
    if (shape.bias) args.bias[i] = d.vector("bias", shape.n[i]);
    if (!shape.swiglu || i == 0) args.out[i] = d.output({out_rows, shape.n[i]});
  }
  if (!shape.rows.empty()) args.rows = d.ints(shape.rows);
  if (shape.swiglu) args.epilogue = Epilogue::swiglu;
  if (shape.residual) args.residual = d.normals({out_rows, shape.n[0]});
  if (shape.residual_is_out) args.out[0] = args.residual;
  if (shape.post_norm) args.post_norm = d.vector("post_norm", shape.n[0] / shape.norms);
  args.eps = 1e-6F;
  args.residual_scale = shape.residual_scale;
  args.out_scale = shape.out_scale;
  image.add(args);
  return image;
}

namespace {

QkvRopeStoreArgs qkv_args(const QkvShape& shape, CaseData& d) {
  const auto [view, batch] = d.cache(shape.attention, false);
  const int64_t q = int64_t{shape.attention.q_heads} * shape.attention.head_dim;
  const int64_t kv = int64_t{shape.attention.kv_heads} * shape.attention.head_dim;
  QkvRopeStoreArgs args{.x = d.normals({batch.tokens, shape.width}), .eps = 1e-6F};
  if (shape.norm) args.norm = d.vector("attn_norm", shape.width);
  args.w[0] = d.matrix("wq", shape.weight, q, shape.width);
  const int64_t values = int64_t{shape.attention.kv_heads} * view.value_dim();
  if (shape.stores) args.w[1] = d.matrix("wk", shape.weight, kv, shape.width);
  if (shape.stores && !shape.v_is_k) args.w[2] = d.matrix("wv", shape.weight, values, shape.width);
  if (shape.bias) {
    args.bias[0] = d.vector("bq", q);
    if (args.w[1] != nullptr) args.bias[1] = d.vector("bk", kv);
    if (args.w[2] != nullptr) args.bias[2] = d.vector("bv", values);
  }
  if (shape.qk_norm) {
    args.q_norm = d.vector("q_norm", shape.row_norms ? q : shape.attention.head_dim);
    if (shape.stores) args.k_norm = d.vector("k_norm", shape.row_norms ? kv : shape.attention.head_dim);
  }
  args.v_norm = shape.v_norm;
  const int32_t rotated = shape.partial_rotation ? shape.attention.head_dim / 2 : shape.attention.head_dim;
  if (shape.rotates) args.rope = d.rope(longest(shape.attention), rotated, shape.pairing);
  if (shape.q_rope) args.q_rope = d.normals(args.rope.table.shape);
  args.kv = view;
  args.batch = batch;
  args.q = d.output({batch.tokens, q});
  if (shape.gate) {
    const int64_t rows = shape.attention.gate_per_head ? shape.attention.q_heads
                                                       : shape.attention.q_heads * values / shape.attention.kv_heads;
    args.w_gate = d.matrix("gate", shape.weight, rows, shape.width);
    args.gate = d.output({batch.tokens, rows});
  }
  return args;
}

}  // namespace

OpImage qkv_case(const QkvShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  image.add(qkv_args(shape, d));
  return image;
}

OpImage attention_block_case(const QkvShape& shape, bool private_results, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  QkvRopeStoreArgs projections = qkv_args(shape, d);
  projections.private_result = private_results;
  AttentionArgs attention = attention_args(shape.attention, projections.q, projections.kv, projections.batch, d);
  attention.private_result = private_results;
  if (shape.gate) attention.gate = projections.gate;
  LinearArgs output{.x = attention.out, .residual = projections.x};
  output.w[0] = d.matrix("wo", shape.weight, shape.width, attention.out.cols());
  output.out[0] = projections.x;
  image.add(projections);
  image.add(attention);
  image.add(output);
  return image;
}

OpImage mlp_case(const MlpShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  GatedMlpArgs args{.x = d.normals({shape.tokens, shape.width}), .eps = 1e-6F};
  if (shape.norm) args.norm = d.vector("ffn_norm", shape.width);
  if (shape.gated) args.gate = d.matrix("gate", shape.weight, shape.ffn, shape.width);
  args.up = d.matrix("up", shape.weight, shape.ffn, shape.width);
  args.down = d.matrix("down", shape.down, shape.width, shape.ffn);
  if (shape.bias) {
    if (shape.gated) args.bias[0] = d.vector("gate_bias", shape.ffn);
    args.bias[1] = d.vector("up_bias", shape.ffn);
    args.bias[2] = d.vector("down_bias", shape.width);
  }
  args.activation = shape.activation;
  if (shape.post_norm) args.post_norm = d.vector("post_ffw_norm", shape.width);
  args.residual_scale = shape.residual_scale;
  args.out_scale = shape.out_scale;
  if (shape.residual_is_out) args.residual = args.x;  // as the decoder calls it: the stream is updated in place
  args.out = shape.residual_is_out ? args.x : d.output({shape.tokens, shape.width});
  image.add(args);
  return image;
}

OpImage moe_case(const MoeShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  MoeMlpArgs args{.x = d.normals({shape.tokens, shape.width}), .eps = 1e-6F};
  if (shape.norm) args.norm = d.vector("ffn_norm", shape.width);
  args.router = d.matrix("router", DType::f32, shape.experts, shape.width);
  if (shape.bias) args.router_bias = d.vector("router_bias", shape.experts);
  if (shape.selection_bias) args.selection_bias = d.vector("selection_bias", shape.experts);
  args.routing = shape.routing;
  if (shape.gated) args.gate = d.matrix("gate", shape.weight, Shape(shape.experts, shape.ffn, shape.width));
  args.up = d.matrix("up", shape.weight, Shape(shape.experts, shape.ffn, shape.width));
  args.down = d.matrix("down", shape.down, Shape(shape.experts, shape.width, shape.ffn));
  if (shape.bias) {
    if (shape.gated) args.bias[0] = d.vector("gate_bias", shape.experts * shape.ffn);
    args.bias[1] = d.vector("up_bias", shape.experts * shape.ffn);
    args.bias[2] = d.vector("down_bias", shape.experts * shape.width);
  }
  args.activation = shape.activation;
  if (shape.shared) args.shared = d.normals({shape.tokens, shape.width});
  if (shape.shared_gate) args.shared_gate = d.vector("shared_gate", shape.width);
  if (shape.post_norm) args.post_norm = d.vector("post_ffw_norm", shape.width);
  args.residual_scale = shape.residual_scale;
  args.out_scale = shape.out_scale;
  if (shape.router_norm) args.router_norm = d.vector("router_norm", shape.width);
  if (shape.expert_scale) args.expert_scale = d.vector("expert_scale", shape.experts);
  if (shape.experts_norm) args.experts_norm = d.vector("experts_norm", shape.width);
  if (shape.residual_is_out) args.residual = args.x;
  args.out = shape.residual_is_out ? args.x : d.output({shape.tokens, shape.width});
  image.add(args);
  return image;
}

OpImage logits_case(const LogitsShape& shape, uint32_t seed) {
  OpImage image;
  CaseData d(image, seed);
  image.add(LogitsArgs{.x = d.normals({shape.tokens, shape.width}),
                       .rows = d.ints(shape.rows),
                       .norm = d.vector("output_norm", shape.width),
                       .eps = 1e-6F,
                       .head = d.matrix("output", shape.weight, shape.vocabulary, shape.width),
                       .scale = shape.scale,
                       .softcap = shape.softcap,
                       .out = d.output({static_cast<int64_t>(shape.rows.size()), shape.vocabulary})});
  return image;
}

}  // namespace inferno
