// Products of a weight with one row of x per token, for few tokens.
//
// A simdgroup computes kRows outputs, and the values of x in its registers serve all of them. Grid: x = ceil(rows /
// (kRows * simdgroups)) threadgroups, y = tokens.
#include "products.h"

inline void finish_rows(thread const float* sums, constant LinearArgs& args, uint first, uint token, uint lane,
                        device const float* bias, device const float* residual, device float* out) {
  for (uint r = 0; r < kRows; ++r) {
    float sum = simd_sum(sums[r]);
    uint row = first + r;
    if (lane != 0 || row >= args.weight.rows) continue;
    ulong at = ulong(token) * args.weight.rows + row;
    if (args.has_bias != 0) sum += bias[row];
    if (args.has_residual != 0) sum += residual[at];
    out[at] = sum;
  }
}

template <typename F>
kernel void linear_blocks(constant LinearArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                          device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                          device const float* residual [[buffer(4)]], device float* out [[buffer(5)]],
                          device const int* x_rows [[buffer(6)]],
                          uint3 position [[threadgroup_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]]) {
  uint token = position.y;
  uint first = (position.x * simdgroups + simdgroup) * kRows;
  ulong x_row = args.has_x_rows != 0 ? ulong(x_rows[token]) : ulong(token);
  device const float* input = x + x_row * args.weight.cols;
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  add_block_products<F>(sums, args.weight, weight, first, rows_from(first, args.weight.rows), input, lane);
  finish_rows(sums, args, first, token, lane, bias, residual, out);
}

template <int kKind>
kernel void linear_plain(constant LinearArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                         device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                         device const float* residual [[buffer(4)]], device float* out [[buffer(5)]],
                         device const int* x_rows [[buffer(6)]],
                         uint3 position [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]]) {
  uint token = position.y;
  uint first = (position.x * simdgroups + simdgroup) * kRows;
  ulong x_row = args.has_x_rows != 0 ? ulong(x_rows[token]) : ulong(token);
  device const float* input = x + x_row * args.weight.cols;
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  add_plain_products<kKind>(sums, args.weight, weight, first, rows_from(first, args.weight.rows), input, lane);
  finish_rows(sums, args, first, token, lane, bias, residual, out);
}

typedef decltype(linear_plain<kPlainF32>) linear_plain_kernel;
template [[host_name("linear_f32")]] kernel linear_plain_kernel linear_plain<kPlainF32>;
template [[host_name("linear_f16")]] kernel linear_plain_kernel linear_plain<kPlainF16>;
template [[host_name("linear_bf16")]] kernel linear_plain_kernel linear_plain<kPlainBf16>;

typedef decltype(linear_blocks<FormatQ8_0>) linear_blocks_kernel;
template [[host_name("linear_q8_0")]] kernel linear_blocks_kernel linear_blocks<FormatQ8_0>;
template [[host_name("linear_q4_0")]] kernel linear_blocks_kernel linear_blocks<FormatQ4_0>;
template [[host_name("linear_q4_1")]] kernel linear_blocks_kernel linear_blocks<FormatQ4_1>;
template [[host_name("linear_q5_0")]] kernel linear_blocks_kernel linear_blocks<FormatQ5_0>;
template [[host_name("linear_q5_1")]] kernel linear_blocks_kernel linear_blocks<FormatQ5_1>;
template [[host_name("linear_q2_k")]] kernel linear_blocks_kernel linear_blocks<FormatQ2_K>;
template [[host_name("linear_q3_k")]] kernel linear_blocks_kernel linear_blocks<FormatQ3_K>;
template [[host_name("linear_q4_k")]] kernel linear_blocks_kernel linear_blocks<FormatQ4_K>;
template [[host_name("linear_q5_k")]] kernel linear_blocks_kernel linear_blocks<FormatQ5_K>;
template [[host_name("linear_q6_k")]] kernel linear_blocks_kernel linear_blocks<FormatQ6_K>;
template [[host_name("linear_iq4_nl")]] kernel linear_blocks_kernel linear_blocks<FormatIQ4_NL>;
template [[host_name("linear_mxfp4")]] kernel linear_blocks_kernel linear_blocks<FormatMXFP4>;
template [[host_name("linear_iq4_xs")]] kernel linear_blocks_kernel linear_blocks<FormatIQ4_XS>;
