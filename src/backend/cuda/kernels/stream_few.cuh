// The product of two tokens with very many rows of quantized weights, the vocabulary (compute capability 9.0): the
// kernel of vector_stream.cuh, which reads each weight once. A row's levels are unpacked once and multiplied with each
// token's. Of so few tokens this takes fewer instructions than tiles on tensor cores (stream_columns.cuh), whose
// results are scaled for eight, and than unpacking to bf16 (head_product.cuh).
#pragma once

#include "backend/cuda/kernels/few_rows.h"
#include "backend/cuda/kernels/stream_columns.cuh"

namespace inferno::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Rows of a chunk. Part j of row r's sum of a token goes to sums[(r * row_parts + j) * kTokens + token].
template <DType F, int kTokens>
struct FewMultiplier {
  int lane, unit, row;

  __device__ __forceinline__ FewMultiplier(const StreamShare<F, false>& w, int warp, int lane_)
      : lane(lane_),
        unit(static_cast<int>(w.a.unit_of_warp >> (4 * warp) & 15U)),
        row(static_cast<int>(w.a.row_of_warp >> (4 * warp) & 15U)) {}

  __device__ __forceinline__ void run(const StreamShare<F, false>& w, uint32_t slot, int count, float* sums) const {
    const int row_step = w.a.row_step;
    if (row >= row_step) return;
    const uint32_t h_plane = slot + round_16(w.bytes.q * w.a.chunk_rows);
    const uint32_t s_plane = h_plane + round_16(w.bytes.h * w.a.chunk_rows);
    const uint32_t d_plane = s_plane + round_16(w.bytes.s * w.a.chunk_rows);
#pragma unroll 1
    for (int first = row; first < count; first += row_step * kBatch) {
      float acc[kTokens][kBatch] = {};
#pragma unroll 1
      for (int u = unit; u < w.a.units; u += kStreamWarps) {
        XGroup x[kTokens];
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          x[t] = Part<F>::activations(w.x + t * w.a.column_bytes, w.a.units * 32, u, lane);
        }
        Part<F> part[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int r = min(first + i * row_step, count - 1);  // rows after the last repeat it
          part[i].load(SharedRow{slot + r * w.bytes.q, h_plane + r * w.bytes.h, s_plane + r * w.bytes.s,
                                 d_plane + r * w.bytes.d},
                       w.bytes, u, lane);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const auto unpacked = part[i].unpack();
#pragma unroll
          for (int t = 0; t < kTokens; ++t) acc[t][i] = Part<F>::multiply(unpacked, x[t], acc[t][i]);
        }
      }
      const int r = first + lane / 8 * row_step;
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float sum = warp_sum_4(acc[t], lane);
        if (lane % 8 == 0 && r < count) sums[(r * w.a.row_parts + unit) * kTokens + t] = sum;
      }
    }
  }
};

template <DType F, int kTokens>
__device__ __forceinline__ void stream_few(const StreamParams& a, uint8_t* shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const StreamShare<F, false> w(a, 0, shared);
  w.open(warp == kStreamWarps, lane, kStreamWarps);
  if (warp == kStreamWarps) {
    prefetch_weights(w, lane);
    return;
  }
  ColumnActivations<F> activations(a, w.x, w.partial, w.sums);
  wait_for_previous();
  activations.run();
  const FewMultiplier<F, kTokens> multiplier(w, warp, lane);
  int slot = 0;
  int parity = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < w.chunks; ++chunk) {
    wait_barrier(w.full + slot * 8, parity);
    multiplier.run(w, w.ring + slot * a.slot_bytes, w.chunk_count(chunk),
                   w.sums + (chunk << a.chunk_shift) * a.row_parts * kTokens);
    __syncwarp();
    if (lane == 0) arrive(w.empty + slot * 8);
    if (++slot == a.stages) slot = 0, parity ^= 1;
  }
  sync_first<kStreamThreads>();
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float factor = activations.factor(t);
#pragma unroll 1
    for (int r = static_cast<int>(threadIdx.x); r < w.rows; r += kStreamThreads) {
      float result = 0;
#pragma unroll 1
      for (int j = 0; j < a.row_parts; ++j) result += w.sums[(r * a.row_parts + j) * kTokens + t];
      w.s.out[int64_t{t} * w.s.rows + w.begin + r] = result * factor;
    }
  }
}

#endif

template <DType F, int kTokens>
__global__ void __launch_bounds__(kStreamThreads + kWarp, kColumnsResident)
    stream_few_kernel(const __grid_constant__ StreamParams a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  stream_few<F, kTokens>(a, shared);
#endif
}

}  // namespace inferno::cuda
