// A simdgroup's products of kRows rows of a weight with one row of x, or with kFewTokens of them.
//
// Each lane takes every 32nd group of 32 values, so that a step of the simdgroup reads adjacent groups of a row, and
// adds to sums of its own, which simd_sum joins. The order of additions is the same for one row of x and for several.
#ifndef INFERNO_METAL_PRODUCTS_H
#define INFERNO_METAL_PRODUCTS_H
#include "formats.h"

constant uint kRows = 4;
constant uint kFewTokens = 8;

// How many of the kRows rows from `first` on there are.
inline uint rows_from(uint first, uint rows) {
  return first < rows ? min(kRows, rows - first) : 0;
}

// sums[kRows] += rows [row, row + rows) of the weight * input
template <typename F>
inline void add_block_products(thread float* sums, constant PlaneArgs& planes, device const uchar* weight, ulong row,
                               uint rows, device const float* input, uint lane) {
  for (uint g = lane; g < planes.groups; g += 32) {
    float values[32];
    float totals[2] = {0.0f, 0.0f};  // of x in each half
    for (uint v = 0; v < 32; ++v) {
      values[v] = input[g * 32 + v];
      totals[v / 16] += values[v];
    }
    for (uint r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      Group group;
      load_group<F>(group, planes, weight, (row + r) * planes.groups + g);
      float products[2] = {0.0f, 0.0f};
      for (uint v = 0; v < 32; ++v) products[v / 16] += group.level[v] * values[v];
      for (uint h = 0; h < 2; ++h) sums[r] += group.scale[h] * products[h] + group.minimum[h] * totals[h];
    }
  }
}

template <int kKind>
inline void add_plain_products(thread float* sums, constant PlaneArgs& planes, device const uchar* weight, ulong row,
                               uint rows, device const float* input, uint lane) {
  for (uint col = lane; col < planes.cols; col += 32) {
    float value = input[col];
    for (uint r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      sums[r] += plain_value<kKind>(weight + planes.q + (row + r) * planes.row_stride, col) * value;
    }
  }
}

// sums[kRows][kFewTokens], the rows of x being those that begin at begins[kFewTokens].
template <typename F>
inline void add_few_block_products(thread float* sums, constant PlaneArgs& planes, device const uchar* weight,
                                   ulong row, uint rows, device const float* x, thread const ulong* begins, uint lane) {
  for (uint g = lane; g < planes.groups; g += 32) {
    for (uint r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      Group group;
      load_group<F>(group, planes, weight, (row + r) * planes.groups + g);
      for (uint t = 0; t < kFewTokens; ++t) {
        device const float* input = x + begins[t] + g * 32;
        float products[2] = {0.0f, 0.0f};
        float totals[2] = {0.0f, 0.0f};
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
}

template <int kKind>
inline void add_few_plain_products(thread float* sums, constant PlaneArgs& planes, device const uchar* weight,
                                   ulong row, uint rows, device const float* x, thread const ulong* begins, uint lane) {
  for (uint col = lane; col < planes.cols; col += 32) {
    for (uint r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      float value = plain_value<kKind>(weight + planes.q + (row + r) * planes.row_stride, col);
      for (uint t = 0; t < kFewTokens; ++t) sums[r * kFewTokens + t] += value * x[begins[t] + col];
    }
  }
}
#endif
