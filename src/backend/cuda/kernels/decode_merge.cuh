// attention_decode.cu's sums of one pair (token, kv head): those of a block's warps, of the two blocks of a cluster
// through their shared memory, and of splits or clusters through device memory.
//
// A partial result is the weighted sum of the values relative to its largest score, and the sum of the weights.
#pragma once

#include "backend/cuda/kernels/cluster.cuh"
#include "backend/cuda/kernels/decode_tile.cuh"

namespace inferno::cuda {

struct PartialRow {
  float high = -INFINITY;  // the largest score, in units of log2
  float sum = 0;           // of the weights
  float4 value = {};       // four columns

  __device__ __forceinline__ void add(float share, float weights, float4 v) {
    sum = fmaf(weights, share, sum);
    value.x = fmaf(v.x, share, value.x);
    value.y = fmaf(v.y, share, value.y);
    value.z = fmaf(v.z, share, value.z);
    value.w = fmaf(v.w, share, value.w);
  }
  [[nodiscard]] __device__ __forceinline__ float4 result() const {
    const float scale = __fdividef(1.0F, sum);
    return make_float4(value.x * scale, value.y * scale, value.z * scale, value.w * scale);
  }
};

// What a block of a cluster of two gets from the other, in its shared memory: the partial results of its half of the
// columns, the rows of a group one after another; block `rank` finishes half `rank`. A thread has four columns.
template <int kDim>
struct ClusterInbox {
  static constexpr int kSums = kMaxGroup * kDim / 2 * 4;  // (high, sum) of each row, after the values
  static constexpr int kBarrier = kSums + kMaxGroup * 8;
  static constexpr int kBytes = kBarrier + 16;

  uint32_t base;  // shared-memory address, a multiple of 16
  int half;       // columns
  int rank;

  __device__ __forceinline__ ClusterInbox(uint32_t address, int group, int rank_)
      : base(address), half(group * kDim / 2), rank(rank_) {}

  // One thread, before the cluster's barrier.
  __device__ __forceinline__ void open() const {
#if __CUDA_ARCH__ >= 900
    init_barrier(base + kBarrier, 1);
    fence_barrier_init();
    arrive_expecting(base + kBarrier, half * 4 + (half + kDim - 1) / kDim * 8);
#endif
  }
  // Columns i .. i + 3, of the other block's half, to that block; with its first columns of a row, the row's sums.
  __device__ __forceinline__ void put(int i, const PartialRow& r) const {
    const int to = 1 - rank;
    const int within = i - to * half;
    const uint32_t barrier = address_in(base + kBarrier, to);
    send(address_in(base + within * 4, to), r.value, barrier);
    if (i % kDim == 0 || within == 0) {
      send(address_in(base + kSums + i / kDim * 8, to), make_float2(r.high, r.sum), barrier);
    }
  }
  // This block's columns i .. i + 3, of its own half: the other's are added. Waits for them.
  __device__ __forceinline__ PartialRow merged(int i, const PartialRow& own) const {
    wait_received(base + kBarrier, 0);
    const uint2 sums = load_shared_8(base + kSums + i / kDim * 8);
    const uint4 v = load_shared_16(base + (i - rank * half) * 4);
    const float high = __uint_as_float(sums.x);
    PartialRow r;
    r.high = fmaxf(own.high, high);
    r.add(fast_exp2(own.high - r.high), own.sum, own.value);
    r.add(fast_exp2(high - r.high), __uint_as_float(sums.y),
          make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)));
    return r;
  }
};

// Through device memory: all splits (or clusters) store their partial results, and the last one to do so merges them.
template <int kDim>
struct SplitPartials {
  static constexpr int kFloats = kDim + kDim / 2;  // per row: values; (high, sum) of each four
  float* first;                                    // of the pair's splits
  int group;

  [[nodiscard]] __device__ __forceinline__ float* values(int split, int i) const {
    return first + split * group * kFloats + i;
  }
  [[nodiscard]] __device__ __forceinline__ float2* sums(int split, int i) const {
    return reinterpret_cast<float2*>(first + split * group * kFloats + group * kDim) + i / 4;
  }
  __device__ __forceinline__ void put(int split, int i, const PartialRow& r) const {
    __stcg(reinterpret_cast<float4*>(values(split, i)), r.value);
    __stcg(sums(split, i), make_float2(r.high, r.sum));
  }
  __device__ __forceinline__ PartialRow get(int splits, int i) const {
    PartialRow r;
#pragma unroll 4
    for (int s = 0; s < splits; ++s) r.high = fmaxf(r.high, __ldcg(sums(s, i)).x);
#pragma unroll 4
    for (int s = 0; s < splits; ++s) {
      const float2 other = __ldcg(sums(s, i));
      r.add(fast_exp2(other.x - r.high), other.y, load_fresh4(values(s, i)));
    }
    return r;
  }
  // Whether this block is the last of `count` to call it; all its threads call it, after put().
  static __device__ __forceinline__ bool is_last(uint32_t* counter, int count, bool* shared) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      *shared = atomicInc(counter, static_cast<unsigned>(count - 1)) == static_cast<unsigned>(count - 1);
    }
    __syncthreads();
    if (*shared) __threadfence();
    return *shared;
  }
};

}  // namespace inferno::cuda
