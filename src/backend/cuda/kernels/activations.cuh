// Loads a token's row of activations into shared memory: normalized, and rounded or quantized as the weight's type
// requires.
#pragma once

#include "backend/cuda/kernels/formats.cuh"
#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

// Puts eight finished values of token row `x` into shared memory, quantized where the weights are. chunk: index of the
// eight values in the row. All threads of a warp call it together.
template <Activation kKind>
__device__ __forceinline__ void put_chunk(uint8_t* x, int groups, int chunk, const float* v) {
  if constexpr (kKind == Activation::f32) {
    reinterpret_cast<float4*>(x)[chunk * 2] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4*>(x)[chunk * 2 + 1] = make_float4(v[4], v[5], v[6], v[7]);
  } else if constexpr (kKind == Activation::split8) {
    reinterpret_cast<float4*>(x)[chunk] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4*>(x)[groups * 4 + chunk] = make_float4(v[4], v[5], v[6], v[7]);
  } else {
    // |x| as an integer finds the largest value, and a NaN or an infinity among them (quant/activation.h).
    uint32_t amax_bits = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) amax_bits = max(amax_bits, __float_as_uint(v[i]) & 0x7fffffffU);
    constexpr int kReach = kKind == Activation::quant32 ? 2 : 16;
#pragma unroll
    for (int step = 1; step <= kReach; step *= 2) {
      amax_bits = max(amax_bits, __shfl_xor_sync(kFullMask, amax_bits, step));
    }
    const float amax = __uint_as_float(amax_bits);
    float d = __fdiv_rn(amax, 127.0F);
    float inverse = __fdiv_rn(1.0F, d);
    if (!isfinite(amax) || !isfinite(inverse)) {
      d = isfinite(amax) ? 0.0F : __uint_as_float(0x7fc00000U);
      inverse = 0.0F;
    }
    int q[8];
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      q[i] = isfinite(amax) ? __float2int_rn(v[i] * inverse) : 0;
      sum += q[i];
    }
    sum += __shfl_xor_sync(kFullMask, sum, 1);  // over 16 values
    const int other = __shfl_down_sync(kFullMask, sum, 2);
    const auto bytes = [&](int i) {
      return (static_cast<uint32_t>(q[i]) & 0xffU) | (static_cast<uint32_t>(q[i + 1]) & 0xffU) << 8 |
             (static_cast<uint32_t>(q[i + 2]) & 0xffU) << 16 | static_cast<uint32_t>(q[i + 3]) << 24;
    };
    const XQuant row{x, groups};
    const int g = chunk / 4;
    const int quarter = chunk % 4;
    uint8_t* half = quarter < 2 ? row.a() : row.b();
    *reinterpret_cast<uint2*>(half + g * 16 + quarter % 2 * 8) = make_uint2(bytes(0), bytes(4));
    if (quarter == 0) {
      row.d()[g] = d;
      row.sums()[g] = (static_cast<uint32_t>(sum) & 0xffffU) | static_cast<uint32_t>(other) << 16;
    }
  }
}

// Token m of a product, loaded by the first kThreads threads of the block; kKept pieces of kThreads * 8 values stay
// in registers between the two passes of a norm.
template <DType F, int kThreads, int kKept>
class ActivationRow {
 public:
  __device__ __forceinline__ ActivationRow(const VectorProduct& p, int m, int units)
      : norm_(p.norm), eps_(p.eps), k_(p.k), groups_(units * 32), aligned_(p.k % 4 == 0) {
    const int64_t row = m >= p.tokens ? 0 : p.row_ids != nullptr ? p.row_ids[m] : m;
    from_ = p.x + row * p.k;
    width_ = m < p.tokens ? p.k : 0;
  }

  // The norm's weights, which no kernel writes: may be called before wait_for_previous().
  __device__ __forceinline__ void load_norm() {
    if (norm_ == nullptr) return;
#pragma unroll
    for (int j = 0; j < kKept; ++j) load_weights(at(j), weights_[j]);
  }

  // On return all threads see the whole row. `partial`: one float per warp.
  __device__ __forceinline__ void run(uint8_t* x, float* partial) {
    float kept[kSlots][8];
#pragma unroll
    for (int j = 0; j < kKept; ++j) load_values(at(j), kept[j]);
    float factor = 1;
    if (norm_ != nullptr) {
      float squares = 0;
      const auto add = [&](const float* v) {
#pragma unroll
        for (int i = 0; i < 8; ++i) squares = fmaf(v[i], v[i], squares);
      };
#pragma unroll
      for (int j = 0; j < kKept; ++j) add(kept[j]);
#pragma unroll 1
      for (int chunk = at(kKept); chunk * 8 < width_; chunk += kThreads) {
        float v[8];
        load_values(chunk, v);
        add(v);
      }
      partial[threadIdx.x / kWarp] = warp_sum(squares);
      sync_first<kThreads>();
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kThreads / kWarp; ++w) sum += partial[w];
      factor = rsqrtf(sum / static_cast<float>(k_) + eps_);
    }
    // Whole warps stay together: the number of chunks is a multiple of 128.
    const int chunks = groups_ * 4;
    float largest = 0;
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
      if (at(j) >= chunks) break;
      finish(kept[j], weights_[j], factor);
      put(x, at(j), kept[j], largest);
    }
#pragma unroll 1
    for (int chunk = at(kKept); chunk < chunks; chunk += kThreads) {
      float v[8];
      load_finished(chunk, factor, v);
      put(x, chunk, v, largest);
    }
    if constexpr (F == DType::f16) {
      // A row with a value that f16 cannot hold is not rounded to f16.
      if (!sync_first_or<kThreads>(largest > kLargestHalf)) return;
#pragma unroll 1
      for (int chunk = at(0); chunk < chunks; chunk += kThreads) {
        float v[8];
        load_finished(chunk, factor, v);
        put_chunk<kKind>(x, groups_, chunk, v);
      }
    }
    sync_first<kThreads>();
  }

 private:
  static constexpr Activation kKind = activation_of<F>();
  static constexpr int kSlots = kKept > 0 ? kKept : 1;
  static constexpr float kLargestHalf = 65504.0F;

  static __device__ __forceinline__ int at(int j) { return j * kThreads + static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ void load_values(int chunk, float* v) const {
    load_fresh8(from_ + chunk * 8, width_ - chunk * 8, aligned_, v);
  }
  __device__ __forceinline__ void load_weights(int chunk, float* w) const {
    load_fresh8(norm_ + chunk * 8, width_ - chunk * 8, aligned_, w);
  }
  __device__ __forceinline__ void finish(float* v, const float* w, float factor) const {
    if (norm_ == nullptr) return;
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * factor * w[i];
  }
  __device__ __forceinline__ void load_finished(int chunk, float factor, float* v) const {
    float w[8];
    load_values(chunk, v);
    if (norm_ != nullptr) load_weights(chunk, w);
    finish(v, w, factor);
  }

  __device__ __forceinline__ void put(uint8_t* x, int chunk, float* v, float& largest) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (F == DType::f16) largest = fmaxf(largest, fabsf(v[i]));
      if constexpr (kKind == Activation::split8) v[i] = F == DType::f16 ? round_f16(v[i]) : round_bf16(v[i]);
    }
    put_chunk<kKind>(x, groups_, chunk, v);
  }

  const float* from_;
  const float* norm_;
  float eps_;
  int k_;
  int width_;   // valid values: k, or 0 for a missing token
  int groups_;  // of 32 values, padded to whole units
  bool aligned_;
  float weights_[kSlots][8];
};

}  // namespace inferno::cuda
