// OpEncoder's layers that mix positions otherwise than by plain attention: recurrent ones, and latent attention.
#include "backend/metal/op_encoder.h"
#include "backend/metal/op_support.h"

namespace inferno::metal {
namespace {

constexpr uint32_t kColumnsPerSimdgroup = 4;  // kColumns of recurrent.metal

// A simdgroup has some columns of a head's matrix.
GridSize matrix_groups(int64_t cols, int64_t heads, int64_t sequences) {
  return {
      .x = blocks(cols, int64_t{kColumnsPerSimdgroup} * kThreads / kSimdWidth), .y = u32(heads), .z = u32(sequences)};
}

}  // namespace

// ---- what they share

void OpEncoder::gated_norm(Binding x, Binding z, const Weight& weight, int64_t rows, const GatedNormArgs& how) {
  dispatch({.kernel = Kernel::gated_norm}, {.x = u32(rows)}, row_threads(how.cols), how, {written(x), z, in(&weight)});
}

void OpEncoder::multiply_pairs(const Weight& weight, const PairRows& rows) {
  PairArgs args{.weight = loaded(weight).planes(),
                .x_token = static_cast<uint64_t>(rows.x_token),
                .x_slot = static_cast<uint64_t>(rows.x_slot),
                .out_token = static_cast<uint64_t>(rows.out_token),
                .out_slot = static_cast<uint64_t>(rows.out_slot),
                .tokens = u32(rows.tokens),
                .slots = u32(rows.slots),
                .has_ids = rows.ids.data != nullptr,
                .has_bias = rows.bias != nullptr};
  args.weight.rows = u32(weight.shape()[1]);
  const KernelId one{.kernel = Kernel::linear_pair, .dtype = weight.dtype()};
  const KernelId several{.kernel = Kernel::linear_pairs, .dtype = weight.dtype()};
  GridSize groups{.x = blocks(args.weight.rows, int64_t{kRowsPerSimdgroup} * kThreads / kSimdWidth)};
  if (planning_) device_.prepare(one);  // later steps may have one token
  if (rows.tokens == 1) {
    groups.y = u32(rows.slots);
    dispatch(one, groups, kThreads, args, {in(&weight), read(rows.x), in(rows.bias), rows.ids, written(rows.out)});
    return;
  }
  groups.y = args.has_ids != 0 ? u32(rows.most_tiles) : u32(rows.slots) * blocks(rows.tokens, kFewTokens);
  dispatch(several, groups, kThreads, args,
           {in(&weight), read(rows.x), in(rows.bias), rows.tile_count, rows.tiles, rows.pairs, written(rows.out)});
}

void OpEncoder::rotate_ends(const RotateEndsArgs& args, Binding x, const RopeParams& rope, const StepBatch& batch,
                            Binding out) {
  dispatch({.kernel = Kernel::rotate_ends},
           {.x = blocks(int64_t{args.heads} * args.rotated, kThreads), .y = u32(batch.tokens)}, kThreads, args,
           {read(x), in(rope.table), in(batch.pos, batch.tokens), written(out)});
}

// ---- recurrent

bool OpEncoder::op(const inferno::ShortConvArgs& a) {
  const StepBatch& b = a.batch;
  const ShortConvArgs args{.channels = u32(a.x.cols()),
                           .taps = u32(a.weight->shape().elements() / a.x.cols()),
                           .has_factor = !a.factor.empty(),
                           .has_bias = a.bias != nullptr,
                           .has_gate = !a.gate.empty(),
                           .silu = a.silu};
  dispatch({.kernel = Kernel::short_conv}, {.x = blocks(a.x.cols(), kThreads), .y = u32(b.sequences)}, kThreads, args,
           {in(a.x), in(a.factor), in(a.weight), in(a.bias), in(a.gate), out(a.state), in(b.q_begin, b.sequences + 1),
            in(b.pos, b.tokens), in(b.state_slot, b.sequences), out(a.out)});
  return true;
}

bool OpEncoder::op(const inferno::DeltaNetArgs& a) {
  const StepBatch& b = a.batch;
  const DeltaNetArgs args{
      .k_heads = u32(a.k_heads), .v_heads = u32(a.v_heads()), .head_dim = u32(a.head_dim()), .grouped = a.grouped};
  dispatch({.kernel = Kernel::delta_net}, matrix_groups(a.head_dim(), a.v_heads(), b.sequences), kThreads, args,
           {in(a.qkv), in(a.beta), in(a.alpha), in(a.a), in(a.dt), out(a.state), in(b.q_begin, b.sequences + 1),
            in(b.pos, b.tokens), in(b.state_slot, b.sequences), out(a.out)});
  gated_norm(in(a.out), in(a.z), *a.norm, a.out.rows() * a.v_heads(),
             {.cols = args.head_dim, .weight_cols = args.head_dim, .gates_first = 0, .eps = a.eps});
  return true;
}

bool OpEncoder::op(const inferno::Mamba2Args& a) {
  const StepBatch& b = a.batch;
  const Mamba2Args args{.heads = u32(a.heads()),
                        .head_dim = u32(a.head_dim()),
                        .state_size = u32(a.state_size()),
                        .groups = u32(a.groups)};
  dispatch({.kernel = Kernel::mamba2}, matrix_groups(a.head_dim(), a.heads(), b.sequences), kThreads, args,
           {in(a.xbc), in(a.dt), in(a.a), in(a.dt_bias), in(a.skip), out(a.state), in(b.q_begin, b.sequences + 1),
            in(b.pos, b.tokens), in(b.state_slot, b.sequences), out(a.out)});
  gated_norm(in(a.out), in(a.z), *a.norm, a.out.rows() * a.groups,
             {.cols = u32(a.out.cols() / a.groups), .weight_cols = u32(a.out.cols()), .gates_first = 1, .eps = a.eps});
  return true;
}

// ---- latent attention

bool OpEncoder::op(const HeadLinearArgs& a) {
  const int64_t heads = a.w->shape()[0];
  const int64_t n = a.w->shape()[1];
  const int64_t k = a.w->shape()[2];
  multiply_pairs(*a.w, {.tokens = a.x.rows(),
                        .slots = heads,
                        .x = in(a.x),
                        .x_token = heads * k,
                        .x_slot = k,
                        .out = out(a.out),
                        .out_token = heads * n,
                        .out_slot = n});
  return true;
}

bool OpEncoder::op(const LatentStoreArgs& a) {
  const int64_t tokens = a.heads.rows();
  const int64_t heads = a.k_b->shape()[0];
  const int64_t latent = a.k_b->shape()[1];
  const int64_t kept = a.k_b->shape()[2];
  const int64_t rotated = a.rope.rotated_dims;
  // Queries: the kept elements through k_b, the others rotated.
  multiply_pairs(*a.k_b, {.tokens = tokens,
                          .slots = heads,
                          .x = in(a.heads),
                          .x_token = heads * (kept + rotated),
                          .x_slot = kept + rotated,
                          .out = out(a.q),
                          .out_token = heads * (latent + rotated),
                          .out_slot = latent + rotated});
  RotateEndsArgs ends{.x_token = u32(heads * (kept + rotated)),
                      .x_head = u32(kept + rotated),
                      .x_kept = u32(kept),
                      .heads = u32(heads),
                      .kept = u32(latent),
                      .rotated = u32(rotated),
                      .interleaved = a.rope.pairing == RopePairing::interleaved};
  rotate_ends(ends, in(a.heads), a.rope, a.batch, out(a.q));

  // The row that all heads share.
  const Binding row = floats(Region::first, tokens * (latent + rotated));
  norm(in(a.latent), a.norm, {.count = tokens, .cols = latent, .stride = latent + rotated}, a.eps, row);
  ends.x_token = u32(latent + rotated);
  ends.x_head = 0;
  ends.x_kept = u32(latent);
  ends.heads = 1;
  rotate_ends(ends, in(a.latent), a.rope, a.batch, row);
  store(row, {}, a.kv, a.batch);
  return true;
}

}  // namespace inferno::metal
