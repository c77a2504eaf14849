// The product of one token with long rows of quantized weights, those of large models (compute capability 9.0): the
// kernel of vector_stream.cuh with twice as many warps, a multiprocessor to itself, and another division of work. Eight
// warps take longer to unpack weights than memory to deliver them, above all what has arrived before the kernel begins.
//
// An item is one unit of all rows of a chunk. The items of all chunks are one sequence, of which a warp has every
// kLongWarps-th: whatever the number of units of a row, all warps have the same work, and rows of few units are
// multiplied several chunks at a time.
#pragma once

#include "backend/cuda/kernels/vector_stream.cuh"

namespace inferno::cuda {

inline constexpr int kLongWarps = 16;
inline constexpr int kLongThreads = kLongWarps * kWarp;
inline constexpr int kLongAhead = 12288;  // activations that are requested together
// Shared memory that a block reserves; with its registers, nothing fits beside it on a multiprocessor.
inline constexpr int kLongSlot = 190 * 1024;
// Chunks of at least this, so that one thread can request them fast enough, and of at most that.
inline constexpr int kLeastLongChunkBytes = 16 * 1024;
inline constexpr int kLongChunkBytes = 44 * 1024;

// A warp that waits for a chunk knows its slot by a parity alone, so the chunk that was there before has to have
// arrived. It has, when `in_flight` chunks before the one that the warp had last have: chunks are requested in order.
__host__ __device__ constexpr int chunks_between_items(int units) {
  return (kLongWarps + units - 1) / units;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// One unit of a chunk's rows, kRows of them at a time (SwiGLU: gate and up of half as many). The sum of row r goes to
// sums[r * units + unit]; SwiGLU rows are gate and up in turn.
template <int kRows, DType F, bool kSwiglu>
__device__ __forceinline__ void multiply_unit(const StreamShare<F, kSwiglu>& w, uint32_t slot, int count, int unit,
                                              int lane, float* sums) {
  constexpr int kParts = kSwiglu ? 2 : 1;
  const int part_space = chunk_space(w.bytes, w.a.chunk_rows);
  const uint32_t h_plane = slot + round_16(w.bytes.q * w.a.chunk_rows);
  const uint32_t s_plane = h_plane + round_16(w.bytes.h * w.a.chunk_rows);
  const uint32_t d_plane = s_plane + round_16(w.bytes.s * w.a.chunk_rows);
  const auto x = Part<F>::activations(w.x, w.a.units * 32, unit, lane);
#pragma unroll 1
  for (int first = 0; first < count; first += kRows / kParts) {
    float acc[kRows] = {};
    Part<F> part[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      // Rows after the last repeat it: their sums are discarded.
      const int r = min(first + i / kParts, count - 1);
      const uint32_t skip = i % kParts * part_space;
      const SharedRow at{slot + skip + r * w.bytes.q, h_plane + skip + r * w.bytes.h, s_plane + skip + r * w.bytes.s,
                         d_plane + skip + r * w.bytes.d};
      part[i].load(at, w.bytes, unit, lane);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) acc[i] = part[i].multiply(x, acc[i]);
    const float sum = kRows == 4 ? warp_sum_4(acc, lane) : warp_sum_2(acc, lane);
    constexpr int kLanes = kWarp / kRows;  // that have the sum of a row
    const int i = lane / kLanes;
    const int r = first + i / kParts;
    if (lane % kLanes == 0 && r < count) sums[(r * kParts + i % kParts) * w.a.units + unit] = sum;
  }
}

template <DType F, bool kSwiglu>
__device__ __forceinline__ void stream_long_rows(const StreamParams& a, int segment, uint8_t* shared) {
  constexpr int kParts = kSwiglu ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const StreamShare<F, kSwiglu> w(a, segment, shared);
  w.open(warp == kLongWarps, lane, a.units);  // one by each item of a chunk
  if (warp == kLongWarps) {
    prefetch_weights(w, lane);
    return;
  }
  const VectorProduct& p = a.p;
  StreamActivations<F, kLongThreads, kLongAhead> activations(p, a.units, w.x, w.partial);
  wait_for_previous();

  // The residual of the thread's first row: loaded here, used in the epilogue.
  const int mine = static_cast<int>(threadIdx.x);
  const bool adds = p.residual != nullptr && mine < w.rows;
  activations.prefetch();
  const float residual = adds ? load_fresh(p.residual + w.begin + mine) : 0.0F;
  activations.run();

  int chunk = 0;
  int slot = 0;
  int parity = 0;
#pragma unroll 1
  for (int unit = warp;; unit += kLongWarps) {
#pragma unroll 1
    for (; unit >= a.units; unit -= a.units) {
      ++chunk;
      if (++slot == a.stages) slot = 0, parity ^= 1;
    }
    if (chunk >= w.chunks) break;
    wait_barrier(w.full + slot * 8, parity);
    const uint32_t from = w.ring + slot * a.slot_bytes;
    float* sums = w.sums + (chunk << a.chunk_shift) * kParts * a.units;
    if (a.batch > 2) {
      multiply_unit<kBatch>(w, from, w.chunk_count(chunk), unit, lane, sums);
    } else {
      multiply_unit<2>(w, from, w.chunk_count(chunk), unit, lane, sums);
    }
    __syncwarp();
    if (lane == 0) arrive(w.empty + slot * 8);
  }
  const float factor = activations.factor();
  sync_first<kLongThreads>();
#pragma unroll 1
  for (int r = mine; r < w.rows; r += kLongThreads) {
    float result[kParts] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float* terms = w.sums + (r * kParts + part) * a.units;
#pragma unroll 4
      for (int j = 0; j < a.units; ++j) result[part] += terms[j];
      result[part] *= factor;
    }
    store_stream_result<kSwiglu>(w, r, result, r == mine, residual);
  }
}

#endif

// Segments are of type F or F2.
template <DType F, DType F2, bool kSwiglu>
__global__ void __launch_bounds__(kLongThreads + kWarp, 1) long_stream_kernel(const __grid_constant__ StreamParams a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  with_segment<F, F2, kSwiglu>(
      a, [&]<DType kType, bool kPair>(int segment) { stream_long_rows<kType, kPair>(a, segment, shared); });
#endif
}

}  // namespace inferno::cuda
