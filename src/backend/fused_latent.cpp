// The definitions of layer_input, and of the ops of multi-head latent attention: latent_store and head_linear.
#include "backend/default_parts.h"

namespace inferno::fused_defaults {
namespace {

Tensor positions_of(const StepBatch& batch) {
  return {const_cast<int32_t*>(batch.pos), Shape(batch.tokens), DType::i32};
}

}  // namespace

void layer_input(Backend& b, const LayerInputArgs& a) {
  const Tensor gate = temporary(b, Shape(a.x.rows(), a.gate->rows()));
  b.linear({.x = a.x, .w = {a.gate}, .out = {gate}});
  const Tensor part = columns(b, a.inputs, a.first_column, gate.cols());
  b.activate({.x = gate, .factor = part, .activation = a.activation, .out = gate});
  b.linear({.x = gate,
            .w = {a.proj},
            .residual = a.x,
            .post_norm = a.post_norm,
            .eps = a.eps,
            .out_scale = a.out_scale,
            .out = {a.out}});
}

void latent_store(Backend& b, const LatentStoreArgs& a) {
  const int64_t rotated = a.rope.rotated_dims;
  const int64_t latent = a.k_b->shape()[1];
  const int64_t kept = a.k_b->shape()[2];
  const Tensor positions = positions_of(a.batch);
  const auto rotate = [&](const Tensor& x) {
    b.apply_rope({.x = x, .positions = positions, .head_dim = a.rope.rotated_dims, .rope = a.rope});
  };
  const RowProducts products(b, a.heads.rows(), kept, latent);
  const Tensor product = temporary(b, Shape(a.heads.rows(), latent));
  const Tensor head = temporary(b, Shape(a.heads.rows(), kept));
  const Tensor turned = temporary(b, Shape(a.heads.rows(), rotated));
  for (int64_t h = 0; h < a.k_b->shape()[0]; ++h) {
    b.copy_2d_from_cols({.x = a.heads, .col_offset = h * (kept + rotated), .out = head});
    b.copy_2d_from_cols({.x = a.heads, .col_offset = h * (kept + rotated) + kept, .out = turned});
    products.run(b, head, *a.k_b, h * latent, product);
    rotate(turned);
    b.copy_2d_into_cols({.src = product, .col_offset = h * (latent + rotated), .dst = a.q});
    b.copy_2d_into_cols({.src = turned, .col_offset = h * (latent + rotated) + latent, .dst = a.q});
  }
  const Tensor shared = columns(b, a.latent, 0, latent);
  const Tensor row = temporary(b, a.latent.shape);
  b.copy_2d_from_cols({.x = a.latent, .col_offset = latent, .out = turned});
  b.rms_norm({.x = shared, .weight = a.norm, .eps = a.eps, .out = shared});
  rotate(turned);
  b.copy_2d_into_cols({.src = shared, .col_offset = 0, .dst = row});
  b.copy_2d_into_cols({.src = turned, .col_offset = latent, .dst = row});
  b.kv_store({.k = row, .kv = a.kv, .batch = a.batch});
}

void head_linear(Backend& b, const HeadLinearArgs& a) {
  const int64_t n = a.w->shape()[1];
  const int64_t k = a.w->shape()[2];
  const RowProducts products(b, a.x.rows(), k, n);
  const Tensor head = temporary(b, Shape(a.x.rows(), k));
  const Tensor product = temporary(b, Shape(a.x.rows(), n));
  for (int64_t h = 0; h < a.w->shape()[0]; ++h) {
    b.copy_2d_from_cols({.x = a.x, .col_offset = h * k, .out = head});
    products.run(b, head, *a.w, h * n, product);
    b.copy_2d_into_cols({.src = product, .col_offset = h * n, .dst = a.out});
  }
}

}  // namespace inferno::fused_defaults
