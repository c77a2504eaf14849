// Products with one of several matrices of a weight: experts, and matrices of heads.
//
// Pair p = token * slots + slot has a row of x, a matrix (ids[p], or its slot) and a row of out. linear_pair takes
// pairs one by one: grid x as in linear.metal, y = pairs. linear_pairs takes up to kFewTokens pairs of one matrix at a
// time, so that the weight is read once for them: y = tiles, those of experts.metal with ids, else for each kFewTokens
// tokens one of every slot. A pair's result does not depend on its mates.
#include "products.h"

// Where the row of x, or of out, of a pair begins.
inline ulong input_begin(constant PairArgs& args, uint pair) {
  return ulong(pair / args.slots) * args.x_token + ulong(pair % args.slots) * args.x_slot;
}
inline ulong output_begin(constant PairArgs& args, uint pair) {
  return ulong(pair / args.slots) * args.out_token + ulong(pair % args.slots) * args.out_slot;
}

inline void finish_pair(thread const float* sums, constant PairArgs& args, ulong matrix, uint pair, uint first,
                        uint lane, device const float* bias, device float* out) {
  ulong begin = output_begin(args, pair);
  for (uint r = 0; r < kRows; ++r) {
    uint row = first + r;
    if (row >= args.weight.rows) break;
    float sum = simd_sum(sums[r]);
    if (lane == 0) out[begin + row] = args.has_bias != 0 ? sum + bias[matrix * args.weight.rows + row] : sum;
  }
}

template <typename F>
kernel void linear_pair_blocks(constant PairArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                               device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                               device const int* ids [[buffer(4)]], device float* out [[buffer(5)]],
                               uint3 position [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simdgroup [[simdgroup_index_in_threadgroup]],
                               uint simdgroups [[simdgroups_per_threadgroup]]) {
  uint pair = position.y;
  uint first = (position.x * simdgroups + simdgroup) * kRows;
  ulong matrix = args.has_ids != 0 ? ulong(ids[pair]) : ulong(pair % args.slots);
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  add_block_products<F>(sums, args.weight, weight, matrix * args.weight.rows + first,
                        rows_from(first, args.weight.rows), x + input_begin(args, pair), lane);
  finish_pair(sums, args, matrix, pair, first, lane, bias, out);
}

template <int kKind>
kernel void linear_pair_plain(constant PairArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                              device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                              device const int* ids [[buffer(4)]], device float* out [[buffer(5)]],
                              uint3 position [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint simdgroups [[simdgroups_per_threadgroup]]) {
  uint pair = position.y;
  uint first = (position.x * simdgroups + simdgroup) * kRows;
  ulong matrix = args.has_ids != 0 ? ulong(ids[pair]) : ulong(pair % args.slots);
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  add_plain_products<kKind>(sums, args.weight, weight, matrix * args.weight.rows + first,
                            rows_from(first, args.weight.rows), x + input_begin(args, pair), lane);
  finish_pair(sums, args, matrix, pair, first, lane, bias, out);
}

// Pairs of one matrix.
struct PairTile {
  ulong matrix;
  uint count;
  uint pairs[8];  // beyond the last the last one again, as in linear_few.metal
};

// False: there is no such tile.
inline bool find_tile(thread PairTile& tile, constant PairArgs& args, device const int* tile_count,
                      device const int* tiles, device const int* pairs, uint index) {
  if (args.has_ids != 0) {
    if (index >= uint(tile_count[0])) return false;
    tile.matrix = ulong(tiles[index * 3]);
    uint begin = uint(tiles[index * 3 + 1]);
    tile.count = uint(tiles[index * 3 + 2]);
    for (uint i = 0; i < kFewTokens; ++i) tile.pairs[i] = uint(pairs[begin + min(i, tile.count - 1)]);
    return true;
  }
  uint slot = index % args.slots;
  uint begin = index / args.slots * kFewTokens;
  tile.matrix = slot;
  tile.count = min(kFewTokens, args.tokens - begin);
  for (uint i = 0; i < kFewTokens; ++i) tile.pairs[i] = (begin + min(i, tile.count - 1)) * args.slots + slot;
  return true;
}

// sums[kRows][kFewTokens]
inline void finish_pairs(thread const float* sums, constant PairArgs& args, thread const PairTile& tile, uint first,
                         uint lane, device const float* bias, device float* out) {
  for (uint r = 0; r < kRows; ++r) {
    uint row = first + r;
    if (row >= args.weight.rows) break;
    float own_bias = args.has_bias != 0 ? bias[tile.matrix * args.weight.rows + row] : 0.0f;
    for (uint t = 0; t < kFewTokens; ++t) {
      if (t >= tile.count) break;
      float sum = simd_sum(sums[r * kFewTokens + t]);
      if (lane == 0) out[output_begin(args, tile.pairs[t]) + row] = sum + own_bias;
    }
  }
}

template <typename F>
kernel void linear_pairs_blocks(constant PairArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                                device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                                device const int* tile_count [[buffer(4)]], device const int* tiles [[buffer(5)]],
                                device const int* pairs [[buffer(6)]], device float* out [[buffer(7)]],
                                uint3 position [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]],
                                uint simdgroups [[simdgroups_per_threadgroup]]) {
  PairTile tile;
  if (!find_tile(tile, args, tile_count, tiles, pairs, position.y)) return;
  uint first = (position.x * simdgroups + simdgroup) * kRows;
  ulong begins[8];
  for (uint t = 0; t < kFewTokens; ++t) begins[t] = input_begin(args, tile.pairs[t]);
  float sums[32];
  for (uint i = 0; i < kRows * kFewTokens; ++i) sums[i] = 0.0f;
  add_few_block_products<F>(sums, args.weight, weight, tile.matrix * args.weight.rows + first,
                            rows_from(first, args.weight.rows), x, begins, lane);
  finish_pairs(sums, args, tile, first, lane, bias, out);
}

template <int kKind>
kernel void linear_pairs_plain(constant PairArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                               device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                               device const int* tile_count [[buffer(4)]], device const int* tiles [[buffer(5)]],
                               device const int* pairs [[buffer(6)]], device float* out [[buffer(7)]],
                               uint3 position [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simdgroup [[simdgroup_index_in_threadgroup]],
                               uint simdgroups [[simdgroups_per_threadgroup]]) {
  PairTile tile;
  if (!find_tile(tile, args, tile_count, tiles, pairs, position.y)) return;
  uint first = (position.x * simdgroups + simdgroup) * kRows;
  ulong begins[8];
  for (uint t = 0; t < kFewTokens; ++t) begins[t] = input_begin(args, tile.pairs[t]);
  float sums[32];
  for (uint i = 0; i < kRows * kFewTokens; ++i) sums[i] = 0.0f;
  add_few_plain_products<kKind>(sums, args.weight, weight, tile.matrix * args.weight.rows + first,
                                rows_from(first, args.weight.rows), x, begins, lane);
  finish_pairs(sums, args, tile, first, lane, bias, out);
}

typedef decltype(linear_pair_plain<kPlainF32>) linear_pair_plain_kernel;
template [[host_name("linear_pair_f32")]] kernel linear_pair_plain_kernel linear_pair_plain<kPlainF32>;
template [[host_name("linear_pair_f16")]] kernel linear_pair_plain_kernel linear_pair_plain<kPlainF16>;
template [[host_name("linear_pair_bf16")]] kernel linear_pair_plain_kernel linear_pair_plain<kPlainBf16>;

typedef decltype(linear_pair_blocks<FormatQ8_0>) linear_pair_blocks_kernel;
template [[host_name("linear_pair_q8_0")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ8_0>;
template [[host_name("linear_pair_q4_0")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ4_0>;
template [[host_name("linear_pair_q4_1")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ4_1>;
template [[host_name("linear_pair_q5_0")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ5_0>;
template [[host_name("linear_pair_q5_1")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ5_1>;
template [[host_name("linear_pair_q2_k")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ2_K>;
template [[host_name("linear_pair_q3_k")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ3_K>;
template [[host_name("linear_pair_q4_k")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ4_K>;
template [[host_name("linear_pair_q5_k")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ5_K>;
template [[host_name("linear_pair_q6_k")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatQ6_K>;
template [[host_name("linear_pair_iq4_nl")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatIQ4_NL>;
template [[host_name("linear_pair_mxfp4")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatMXFP4>;
template [[host_name("linear_pair_iq4_xs")]] kernel linear_pair_blocks_kernel linear_pair_blocks<FormatIQ4_XS>;

typedef decltype(linear_pairs_plain<kPlainF32>) linear_pairs_plain_kernel;
template [[host_name("linear_pairs_f32")]] kernel linear_pairs_plain_kernel linear_pairs_plain<kPlainF32>;
template [[host_name("linear_pairs_f16")]] kernel linear_pairs_plain_kernel linear_pairs_plain<kPlainF16>;
template [[host_name("linear_pairs_bf16")]] kernel linear_pairs_plain_kernel linear_pairs_plain<kPlainBf16>;

typedef decltype(linear_pairs_blocks<FormatQ8_0>) linear_pairs_blocks_kernel;
template [[host_name("linear_pairs_q8_0")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ8_0>;
template [[host_name("linear_pairs_q4_0")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ4_0>;
template [[host_name("linear_pairs_q4_1")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ4_1>;
template [[host_name("linear_pairs_q5_0")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ5_0>;
template [[host_name("linear_pairs_q5_1")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ5_1>;
template [[host_name("linear_pairs_q2_k")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ2_K>;
template [[host_name("linear_pairs_q3_k")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ3_K>;
template [[host_name("linear_pairs_q4_k")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ4_K>;
template [[host_name("linear_pairs_q5_k")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ5_K>;
template [[host_name("linear_pairs_q6_k")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatQ6_K>;
template [[host_name("linear_pairs_iq4_nl")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatIQ4_NL>;
template [[host_name("linear_pairs_mxfp4")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatMXFP4>;
template [[host_name("linear_pairs_iq4_xs")]] kernel linear_pairs_blocks_kernel linear_pairs_blocks<FormatIQ4_XS>;
