// Products of a weight with many rows of x, for prompts: 8x8 matrices that a simdgroup multiplies at once.
//
// A threadgroup of four simdgroups makes a tile of kManyRows outputs of kManyTokens tokens, 32 columns at a time: its
// threads unpack them into threadgroup memory, a weight once for all tokens of the tile, and each simdgroup multiplies
// a quarter, 32 outputs of 16 tokens. Beyond the edges of weight and x there are zeros. Grid: x = ceil(rows /
// kManyRows), y = ceil(tokens / kManyTokens).
#include "formats.h"

constant uint kManyRows = 64;
constant uint kManyTokens = 32;
constant uint kManyCols = 32;
constant uint kManyThreads = 128;

// Half a group: 16 values of one row as column `row` of tile [kManyCols][kManyRows], whose neighbours other threads write.
template <typename F, int kHalf>
inline void unpack_half(constant PlaneArgs& planes, device const uchar* weight, ulong index, threadgroup float* tile,
                        uint row) {
  Codes codes;
  Group group;
  load_codes<F>(codes, planes, weight, index);
  load_scales<F>(group, planes, weight, index);
  for (uint v = 16 * kHalf; v < 16 * kHalf + 16; ++v) {
    tile[v * kManyRows + row] = group.scale[kHalf] * level_at<F>(codes, v) + group.minimum[kHalf];
  }
}

// 32 columns of x from `col` on for the tokens of this tile: tile [kManyTokens][kManyCols].
inline void load_inputs(constant LinearArgs& args, device const float* x, device const int* x_rows, uint first_token,
                        uint col, threadgroup float* tile, uint thread_index) {
  for (uint i = thread_index; i < kManyTokens * kManyCols; i += kManyThreads) {
    uint token = first_token + i / kManyCols;
    uint c = col + i % kManyCols;
    float value = 0.0f;
    if (token < args.tokens && c < args.weight.cols) {
      ulong row = args.has_x_rows != 0 ? ulong(x_rows[token]) : ulong(token);
      value = x[row * args.weight.cols + c];
    }
    tile[i] = value;
  }
}

// sums [2][4]: of 8 tokens and 8 outputs each.
inline void multiply_tiles(thread simdgroup_float8x8* sums, threadgroup const float* inputs,
                           threadgroup const float* weights, uint simdgroup) {
  uint first_row = simdgroup % 2 * 32;
  uint first_token = simdgroup / 2 * 16;
  for (uint k = 0; k < kManyCols; k += 8) {
    simdgroup_float8x8 a[2];
    simdgroup_float8x8 b;
    for (uint t = 0; t < 2; ++t) simdgroup_load(a[t], inputs + (first_token + t * 8) * kManyCols + k, kManyCols);
    for (uint r = 0; r < 4; ++r) {
      simdgroup_load(b, weights + k * kManyRows + first_row + r * 8, kManyRows);
      for (uint t = 0; t < 2; ++t) simdgroup_multiply_accumulate(sums[t * 4 + r], a[t], b, sums[t * 4 + r]);
    }
  }
}

// tile: room for [kManyTokens][kManyRows], free for use.
inline void finish_many(thread simdgroup_float8x8* sums, constant LinearArgs& args, uint first, uint first_token,
                        device const float* bias, device const float* residual, device float* out,
                        threadgroup float* tile, uint simdgroup, uint thread_index) {
  uint own = simdgroup / 2 * 16 * kManyRows + simdgroup % 2 * 32;
  for (uint t = 0; t < 2; ++t) {
    for (uint r = 0; r < 4; ++r) simdgroup_store(sums[t * 4 + r], tile + own + t * 8 * kManyRows + r * 8, kManyRows);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < kManyTokens * kManyRows; i += kManyThreads) {
    uint row = first + i % kManyRows;
    uint token = first_token + i / kManyRows;
    if (row >= args.weight.rows || token >= args.tokens) continue;
    ulong at = ulong(token) * args.weight.rows + row;
    float sum = tile[i];
    if (args.has_bias != 0) sum += bias[row];
    if (args.has_residual != 0) sum += residual[at];
    out[at] = sum;
  }
}

template <typename F>
kernel void linear_many_blocks(constant LinearArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                               device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                               device const float* residual [[buffer(4)]], device float* out [[buffer(5)]],
                               device const int* x_rows [[buffer(6)]],
                               uint3 position [[threadgroup_position_in_grid]],
                               uint thread_index [[thread_index_in_threadgroup]],
                               uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float weights[32 * 64];
  threadgroup float inputs[32 * 32];
  uint first = position.x * kManyRows;
  uint first_token = position.y * kManyTokens;
  uint tile_row = thread_index % kManyRows;
  // Beyond the last row the last one again: its sums go nowhere.
  ulong row = min(first + tile_row, args.weight.rows - 1);
  simdgroup_float8x8 sums[8];
  for (uint i = 0; i < 8; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
  for (uint g = 0; g < args.weight.groups; ++g) {
    // The half is the same for all lanes of a simdgroup.
    if (simdgroup < 2) {
      unpack_half<F, 0>(args.weight, weight, row * args.weight.groups + g, weights, tile_row);
    } else {
      unpack_half<F, 1>(args.weight, weight, row * args.weight.groups + g, weights, tile_row);
    }
    load_inputs(args, x, x_rows, first_token, g * 32, inputs, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_tiles(sums, inputs, weights, simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  finish_many(sums, args, first, first_token, bias, residual, out, weights, simdgroup, thread_index);
}

template <int kKind>
kernel void linear_many_plain(constant LinearArgs& args [[buffer(0)]], device const uchar* weight [[buffer(1)]],
                              device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
                              device const float* residual [[buffer(4)]], device float* out [[buffer(5)]],
                              device const int* x_rows [[buffer(6)]],
                              uint3 position [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float weights[32 * 64];
  threadgroup float inputs[32 * 32];
  uint first = position.x * kManyRows;
  uint first_token = position.y * kManyTokens;
  uint tile_row = thread_index % kManyRows;
  uint half_begin = thread_index / kManyRows * 16;
  ulong row = min(first + tile_row, args.weight.rows - 1);
  device const uchar* values = weight + args.weight.q + row * args.weight.row_stride;
  simdgroup_float8x8 sums[8];
  for (uint i = 0; i < 8; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8>(0.0f);
  for (uint col = 0; col < args.weight.cols; col += kManyCols) {
    for (uint c = half_begin; c < half_begin + 16; ++c) {
      weights[c * kManyRows + tile_row] = col + c < args.weight.cols ? plain_value<kKind>(values, col + c) : 0.0f;
    }
    load_inputs(args, x, x_rows, first_token, col, inputs, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply_tiles(sums, inputs, weights, simdgroup);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  finish_many(sums, args, first, first_token, bias, residual, out, weights, simdgroup, thread_index);
}

typedef decltype(linear_many_plain<kPlainF32>) linear_many_plain_kernel;
template [[host_name("linear_many_f32")]] kernel linear_many_plain_kernel linear_many_plain<kPlainF32>;
template [[host_name("linear_many_f16")]] kernel linear_many_plain_kernel linear_many_plain<kPlainF16>;
template [[host_name("linear_many_bf16")]] kernel linear_many_plain_kernel linear_many_plain<kPlainBf16>;

typedef decltype(linear_many_blocks<FormatQ8_0>) linear_many_blocks_kernel;
template [[host_name("linear_many_q8_0")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ8_0>;
template [[host_name("linear_many_q4_0")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ4_0>;
template [[host_name("linear_many_q4_1")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ4_1>;
template [[host_name("linear_many_q5_0")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ5_0>;
template [[host_name("linear_many_q5_1")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ5_1>;
template [[host_name("linear_many_q2_k")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ2_K>;
template [[host_name("linear_many_q3_k")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ3_K>;
template [[host_name("linear_many_q4_k")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ4_K>;
template [[host_name("linear_many_q5_k")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ5_K>;
template [[host_name("linear_many_q6_k")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatQ6_K>;
template [[host_name("linear_many_iq4_nl")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatIQ4_NL>;
template [[host_name("linear_many_mxfp4")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatMXFP4>;
template [[host_name("linear_many_iq4_xs")]] kernel linear_many_blocks_kernel linear_many_blocks<FormatIQ4_XS>;
