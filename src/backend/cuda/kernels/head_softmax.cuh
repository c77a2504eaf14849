// The softmax of decode attention over a warp's tiles of 16 positions.
//
// Keys are the rows of a tensor-core product and a group's query heads its columns, so that no row is wasted on heads
// that a group does not have: lane l, with g = l / 4 and c = l % 4, has the scores of positions g and g + 8 for heads
// 2c and 2c + 1. Transposed, the weights are the second operand of the product with the values, whose rows are columns
// of the head.
#pragma once

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/mma.cuh"

namespace inferno::cuda {

struct HeadSoftmax {
  float high[2] = {-INFINITY, -INFINITY};  // of heads 2c and 2c + 1, in units of log2
  float sum[2] = {};                       // of their weights, this lane's positions

  // Scores s, of which at least one of each head is finite, become weights, as the operand `b`; returns by what earlier
  // sums are to be multiplied.
  template <typename T>
  __device__ __forceinline__ float2 add(float (&s)[4], uint32_t (&b)[2]) {
    float rescale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float tile = fmaxf(s[h], s[h + 2]);
#pragma unroll
      for (int step = 4; step < kWarp; step *= 2) tile = fmaxf(tile, __shfl_xor_sync(kFullMask, tile, step));
      tile = fmaxf(high[h], tile);
      rescale[h] = fast_exp2(high[h] - tile);
      high[h] = tile;
      s[h] = fast_exp2(s[h] - tile);
      s[h + 2] = fast_exp2(s[h + 2] - tile);
      sum[h] = fmaf(sum[h], rescale[h], s[h] + s[h + 2]);
    }
    b[0] = transposed(pack_pair<T>(s[0], s[1]));
    b[1] = transposed(pack_pair<T>(s[2], s[3]));
    return make_float2(rescale[0], rescale[1]);
  }
  // After the last tile: all lanes get the sums of all positions.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int step = 4; step < kWarp; step *= 2) sum[h] += __shfl_xor_sync(kFullMask, sum[h], step);
    }
  }

  // Products with values: rows are columns of the head, columns are heads.
  template <typename T>
  static __device__ __forceinline__ void multiply(float (&o)[4], float2 rescale, uint32_t a0, uint32_t a1, uint32_t a2,
                                                  uint32_t a3, const uint32_t (&b)[2]) {
    o[0] *= rescale.x;
    o[1] *= rescale.y;
    o[2] *= rescale.x;
    o[3] *= rescale.y;
    mma<T>(o, a0, a1, a2, a3, b[0], b[1]);
  }
};

}  // namespace inferno::cuda
