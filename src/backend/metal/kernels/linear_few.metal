// Products of a weight with few rows of x at a time, for several tokens: what a group of the weight is unpacked for.
//
// A simdgroup computes kRows outputs of kFewTokens tokens, in the order of linear.metal, so that a token's result does
// not depend on how many there are. Grid: x = ceil(rows / (kRows * simdgroups)) threadgroups, y = ceil(tokens /
// kFewTokens).
#include "products.h"

// Where the row of x for a token begins.
inline ulong row_begin(constant LinearArgs& args, device const int* x_rows, uint token) {
  ulong row = args.has_x_rows != 0 ? ulong(x_rows[token]) : ulong(token);
  return row * args.weight.cols;
}

// sums[kRows][kFewTokens]
inline void finish_few(thread const float* sums, constant LinearArgs& args, uint first, uint first_token, uint lane,
                       device const float* bias, device const float* residual, device float* out) {
  for (uint r = 0; r < kRows; ++r) {
    for (uint t = 0; t < kFewTokens; ++t) {
      float sum = simd_sum(sums[r * kFewTokens + t]);
      uint row = first + r;
      uint token = first_token + t;
      if (lane != 0 || row >= args.weight.rows || token >= args.tokens) continue;
      ulong at = ulong(token) * args.weight.rows + row;
      if (args.has_bias != 0) sum += bias[row];
      if (args.has_residual != 0) sum += residual[at];
      out[at] = sum;
    }
  }
}

template <typename F>
kernel void linear_few_blocks(constant LinearArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                              device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                              device const float* residual [[buffer(4)]], device float* out [[buffer(5)]],
                              device const int* x_rows [[buffer(6)]],
                              uint3 position [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint simdgroups [[simdgroups_per_threadgroup]]) {
  uint first = (position.x * simdgroups + simdgroup) * kRows;
  uint first_token = position.y * kFewTokens;
  // Beyond the last token the last one again: loops of constant length keep sums in registers.
  ulong begins[8];
  for (uint t = 0; t < kFewTokens; ++t) begins[t] = row_begin(args, x_rows, min(first_token + t, args.tokens - 1));
  float sums[32];
  for (uint i = 0; i < kRows * kFewTokens; ++i) sums[i] = 0.0f;
  add_few_block_products<F>(sums, args.weight, weight, first, rows_from(first, args.weight.rows), x, begins, lane);
  finish_few(sums, args, first, first_token, lane, bias, residual, out);
}

template <int kKind>
kernel void linear_few_plain(constant LinearArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                             device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                             device const float* residual [[buffer(4)]], device float* out [[buffer(5)]],
                             device const int* x_rows [[buffer(6)]],
                             uint3 position [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint simdgroups [[simdgroups_per_threadgroup]]) {
  uint first = (position.x * simdgroups + simdgroup) * kRows;
  uint first_token = position.y * kFewTokens;
  // Beyond the last token the last one again: loops of constant length keep sums in registers.
  ulong begins[8];
  for (uint t = 0; t < kFewTokens; ++t) begins[t] = row_begin(args, x_rows, min(first_token + t, args.tokens - 1));
  float sums[32];
  for (uint i = 0; i < kRows * kFewTokens; ++i) sums[i] = 0.0f;
  add_few_plain_products<kKind>(sums, args.weight, weight, first, rows_from(first, args.weight.rows), x, begins, lane);
  finish_few(sums, args, first, first_token, lane, bias, residual, out);
}

typedef decltype(linear_few_plain<kPlainF32>) linear_few_plain_kernel;
template [[host_name("linear_few_f32")]] kernel linear_few_plain_kernel linear_few_plain<kPlainF32>;
template [[host_name("linear_few_f16")]] kernel linear_few_plain_kernel linear_few_plain<kPlainF16>;
template [[host_name("linear_few_bf16")]] kernel linear_few_plain_kernel linear_few_plain<kPlainBf16>;

typedef decltype(linear_few_blocks<FormatQ8_0>) linear_few_blocks_kernel;
template [[host_name("linear_few_q8_0")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ8_0>;
template [[host_name("linear_few_q4_0")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ4_0>;
template [[host_name("linear_few_q4_1")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ4_1>;
template [[host_name("linear_few_q5_0")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ5_0>;
template [[host_name("linear_few_q5_1")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ5_1>;
template [[host_name("linear_few_q2_k")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ2_K>;
template [[host_name("linear_few_q3_k")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ3_K>;
template [[host_name("linear_few_q4_k")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ4_K>;
template [[host_name("linear_few_q5_k")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ5_K>;
template [[host_name("linear_few_q6_k")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatQ6_K>;
template [[host_name("linear_few_iq4_nl")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatIQ4_NL>;
template [[host_name("linear_few_mxfp4")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatMXFP4>;
template [[host_name("linear_few_iq4_xs")]] kernel linear_few_blocks_kernel linear_few_blocks<FormatIQ4_XS>;
