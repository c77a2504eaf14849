// OpRunner's layers that mix positions otherwise than by plain attention: recurrent ones, and latent attention.
#include "backend/cuda/op_runner.h"
#include "backend/cuda/op_support.h"

namespace inferno::cuda {

// ---- recurrent

void OpRunner::run(const ShortConvArgs& a) {
  const ShortConv task{.x = a.x.f32(),
                       .factor = a.factor.f32(),
                       .weight = vector_or_null(a.weight),
                       .bias = vector_or_null(a.bias),
                       .silu = a.silu,
                       .gate = a.gate.f32(),
                       .state = a.state.f32(),
                       .channels = a.x.cols(),
                       .taps = static_cast<int>(a.weight->shape().elements() / a.x.cols()),
                       .batch = a.batch,
                       .out = a.out.f32()};
  enqueue([&](const LaunchContext& c) { launch_short_conv(c, task); });
}

void OpRunner::run(const DeltaNetArgs& a) {
  const DeltaNet task{.qkv = a.qkv.f32(),
                      .beta = a.beta.f32(),
                      .alpha = a.alpha.f32(),
                      .a = vector_or_null(a.a),
                      .dt = vector_or_null(a.dt),
                      .k_heads = a.k_heads,
                      .v_heads = static_cast<int>(a.v_heads()),
                      .head_dim = static_cast<int>(a.head_dim()),
                      .grouped = a.grouped,
                      .state = a.state.f32(),
                      .batch = a.batch,
                      .out = a.out.f32()};
  enqueue([&](const LaunchContext& c) { launch_delta_net(c, task); });
  const GatedNorm norm{.x = a.out.f32(),
                       .z = a.z.f32(),
                       .weight = vector_or_null(a.norm),
                       .weight_cols = a.head_dim(),
                       .eps = a.eps,
                       .rows = a.out.rows(),
                       .cols = a.out.cols(),
                       .norm_cols = a.head_dim()};
  enqueue([&](const LaunchContext& c) { launch_gated_norm(c, norm); });
}

void OpRunner::run(const Mamba2Args& a) {
  const Mamba2 task{.xbc = a.xbc.f32(),
                    .dt = a.dt.f32(),
                    .a = vector_or_null(a.a),
                    .dt_bias = vector_or_null(a.dt_bias),
                    .skip = vector_or_null(a.skip),
                    .heads = static_cast<int>(a.heads()),
                    .head_dim = static_cast<int>(a.head_dim()),
                    .state_size = static_cast<int>(a.state_size()),
                    .groups = a.groups,
                    .state = a.state.f32(),
                    .batch = a.batch,
                    .out = a.out.f32()};
  enqueue([&](const LaunchContext& c) { launch_mamba2(c, task); });
  const GatedNorm norm{.x = a.out.f32(),
                       .z = a.z.f32(),
                       .weight = vector_or_null(a.norm),
                       .weight_cols = a.out.cols(),
                       .eps = a.eps,
                       .gates_first = true,
                       .rows = a.out.rows(),
                       .cols = a.out.cols(),
                       .norm_cols = a.out.cols() / a.groups};
  enqueue([&](const LaunchContext& c) { launch_gated_norm(c, norm); });
}

// ---- latent attention

void OpRunner::run(const HeadLinearArgs& a) {
  const int64_t heads = a.w->shape()[0];
  const int64_t n = a.w->shape()[1];
  const int64_t k = a.w->shape()[2];
  const PairProduct product{.w = on_device(a.w).planes(),
                            .dtype = a.w->dtype(),
                            .rows = static_cast<int>(n),
                            .k = static_cast<int>(k),
                            .tokens = a.x.rows(),
                            .slots = static_cast<int>(heads),
                            .matrices = static_cast<int>(heads),
                            .columns = pair_columns(*a.w, a.x.rows()),
                            .x = a.x.f32(),
                            .x_token = heads * k,
                            .x_slot = k,
                            .out = a.out.f32(),
                            .out_token = heads * n,
                            .out_slot = n};
  enqueue([&](const LaunchContext& c) { launch_pair_product(c, product); });
}

void OpRunner::run(const LatentStoreArgs& a) {
  const int64_t tokens = a.heads.rows();
  const int64_t heads = a.k_b->shape()[0];
  const int64_t latent = a.k_b->shape()[1];
  const int64_t kept = a.k_b->shape()[2];
  const int64_t rotated = a.rope.rotated_dims;
  // Queries: the kept elements through k_b, the others rotated.
  const PairProduct product{.w = on_device(a.k_b).planes(),
                            .dtype = a.k_b->dtype(),
                            .rows = static_cast<int>(latent),
                            .k = static_cast<int>(kept),
                            .tokens = tokens,
                            .slots = static_cast<int>(heads),
                            .matrices = static_cast<int>(heads),
                            .columns = pair_columns(*a.k_b, tokens),
                            .x = a.heads.f32(),
                            .x_token = heads * (kept + rotated),
                            .x_slot = kept + rotated,
                            .out = a.q.f32(),
                            .out_token = heads * (latent + rotated),
                            .out_slot = latent + rotated};
  enqueue([&](const LaunchContext& c) { launch_pair_product(c, product); });
  RotateEnds ends{.from = a.heads.f32(),
                  .from_token = heads * (kept + rotated),
                  .from_head = kept + rotated,
                  .from_kept = kept,
                  .table = a.rope.table.f32(),
                  .rotated = a.rope.rotated_dims,
                  .half_split = a.rope.pairing == RopePairing::half_split,
                  .positions = a.batch.pos,
                  .tokens = tokens,
                  .heads = static_cast<int>(heads),
                  .kept = latent,
                  .out = a.q.f32()};
  enqueue([&](const LaunchContext& c) { launch_rotate_ends(c, ends); });

  // The row that all heads share.
  auto* row = static_cast<float*>(region(Region::raw_heads, f32_rows_bytes(tokens, latent + rotated)));
  enqueue([&](const LaunchContext& c) {
    launch_norm_rows(c, {.x = a.latent.f32(),
                         .weight = vector_or_null(a.norm),
                         .eps = a.eps,
                         .rows = tokens,
                         .cols = latent,
                         .x_stride = latent + rotated,
                         .out_stride = latent + rotated,
                         .out = row});
  });
  ends.from = a.latent.f32();
  ends.from_token = latent + rotated;
  ends.from_head = 0;
  ends.from_kept = latent;
  ends.heads = 1;
  ends.out = row;
  enqueue([&](const LaunchContext& c) { launch_rotate_ends(c, ends); });
  enqueue([&](const LaunchContext& c) { launch_cache_rows(c, row, a.kv, a.batch); });
}

}  // namespace inferno::cuda
