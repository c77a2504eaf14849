// Products of a weight with few rows of x at a time, for several tokens: what a group of the weight is unpacked for.
//
// A simdgroup computes kFewRows outputs of kFewTokens tokens; each lane takes every 32nd group of 32 values, as in
// linear.metal, and adds up in the same order, so that a token's result does not depend on how many there are. Grid:
// x = ceil(rows / (kFewRows * simdgroups)) threadgroups, y = ceil(tokens / kFewTokens).
#include "formats.h"

constant uint kFewRows = 4;
constant uint kFewTokens = 8;

// Where the row of x for a token begins.
inline ulong row_begin(constant LinearArgs& args, device const int* x_rows, uint token) {
  ulong row = args.has_x_rows != 0 ? ulong(x_rows[token]) : ulong(token);
  return row * args.weight.cols;
}

// sums[kFewRows][kFewTokens]
inline void finish_few(thread const float* sums, constant LinearArgs& args, uint first, uint first_token, uint lane,
                       device const float* bias, device const float* residual, device float* out) {
  for (uint r = 0; r < kFewRows; ++r) {
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
  uint first = (position.x * simdgroups + simdgroup) * kFewRows;
  uint first_token = position.y * kFewTokens;
  // Beyond the last token the last one again: loops of constant length keep sums in registers.
  ulong begins[8];
  for (uint t = 0; t < kFewTokens; ++t) begins[t] = row_begin(args, x_rows, min(first_token + t, args.tokens - 1));
  float sums[32];
  for (uint i = 0; i < kFewRows * kFewTokens; ++i) sums[i] = 0.0f;
  for (uint g = lane; g < args.weight.groups; g += 32) {
    for (uint r = 0; r < kFewRows; ++r) {
      uint row = first + r;
      if (row >= args.weight.rows) break;
      Group group;
      load_group<F>(group, args.weight, weight, ulong(row) * args.weight.groups + g);
      for (uint t = 0; t < kFewTokens; ++t) {
        device const float* input = x + begins[t] + g * 32;
        float products[2] = {0.0f, 0.0f};
        float totals[2] = {0.0f, 0.0f};  // of x in each half
        for (uint v = 0; v < 32; ++v) {
          products[v / 16] += group.level[v] * input[v];
          totals[v / 16] += input[v];
        }
        for (uint h = 0; h < 2; ++h) {
          sums[r * kFewTokens + t] += group.scale[h] * products[h] + group.minimum[h] * totals[h];
        }
      }
    }
  }
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
  uint first = (position.x * simdgroups + simdgroup) * kFewRows;
  uint first_token = position.y * kFewTokens;
  // Beyond the last token the last one again: loops of constant length keep sums in registers.
  ulong begins[8];
  for (uint t = 0; t < kFewTokens; ++t) begins[t] = row_begin(args, x_rows, min(first_token + t, args.tokens - 1));
  float sums[32];
  for (uint i = 0; i < kFewRows * kFewTokens; ++i) sums[i] = 0.0f;
  for (uint col = lane; col < args.weight.cols; col += 32) {
    for (uint r = 0; r < kFewRows; ++r) {
      uint row = first + r;
      if (row >= args.weight.rows) break;
      float value = plain_value<kKind>(weight + args.weight.q + ulong(row) * args.weight.row_stride, col);
      for (uint t = 0; t < kFewTokens; ++t) sums[r * kFewTokens + t] += value * x[begins[t] + col];
    }
  }
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
