// Loads the activations of one token into shared memory. Every block of a decode step does this between the end of the
// previous kernel and its first product, so latency is what counts.
//
// A row x with norm weights w is stored as x * w, rounded or quantized; the norm's factor, which is known only after
// the whole row has been read, multiplies the finished products: rounding to a floating type and quantizing by the
// largest value do not depend on it. F16 has a narrow range, so there the factor is applied first.
#pragma once

#include <type_traits>

#include "backend/cuda/kernels/activations.cuh"

namespace inferno::cuda {

__host__ __device__ constexpr bool on_tensor_cores(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16;
}
template <DType F>
__host__ __device__ constexpr Activation stream_activation() {
  return on_tensor_cores(F) ? Activation::halves : activation_of<F>();
}

// On tensor cores: one array has the values, rounded to the weights' type; a second (f16 only) the rounding residuals
// times this: for rows beyond f16's range, which are scaled down, both together keep 22 bits.
inline constexpr float kResidualScale = 2048.0F;

// Stores pieces of kValues finished values of a row of activations, rounded or quantized as the weights' type requires.
// All lanes of a warp store pieces next to each other at the same time.
template <DType F>
struct ActivationWriter {
  static constexpr Activation kKind = stream_activation<F>();
  static constexpr int kValues = 8;
  uint8_t* x;
  int groups;  // of 32 values, padded to whole units

  __device__ __forceinline__ void put(int piece, const float* v) const {
    if constexpr (kKind == Activation::halves) {
      using T = std::conditional_t<F == DType::f16, __half, __nv_bfloat16>;
      reinterpret_cast<uint4*>(x)[piece] = make_uint4(pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]),
                                                      pack_pair<T>(v[4], v[5]), pack_pair<T>(v[6], v[7]));
    } else {
      put_quantized(piece, v);
    }
  }

  __device__ __forceinline__ void put_quantized(int piece, const float* v) const {
    constexpr int kGroupPieces = 32 / kValues;
    // |x| as an integer finds the largest value, and a NaN or an infinity among them.
    uint32_t amax_bits = 0;
#pragma unroll
    for (int c = 0; c < kValues; ++c) amax_bits = max(amax_bits, __float_as_uint(v[c]) & 0x7fffffffU);
    if constexpr (kKind == Activation::quant256) {  // a warp has 256 values
      amax_bits = __reduce_max_sync(kFullMask, amax_bits);
    } else {
#pragma unroll
      for (int step = 1; step < kGroupPieces; step *= 2) {
        amax_bits = max(amax_bits, __shfl_xor_sync(kFullMask, amax_bits, step));
      }
    }
    // Too small for a reciprocal: all zero. A NaN or an infinity propagates to d, and so to every product.
    const float amax = __uint_as_float(amax_bits);
    constexpr float kSmallest = 1e-30F;
    const bool nothing = amax < kSmallest;
    const float d = nothing ? 0.0F : amax * (1.0F / 127.0F);
    const float inverse = nothing ? 0.0F : __fdividef(127.0F, amax);
    uint32_t words[kValues / 4];
#pragma unroll
    for (int w = 0; w < kValues / 4; ++w) {
      const float* four = v + 4 * w;
      words[w] = pack_levels(__float2int_rn(four[0] * inverse), __float2int_rn(four[1] * inverse),
                             __float2int_rn(four[2] * inverse), __float2int_rn(four[3] * inverse));
    }
    const XQuant row{x, groups};
    const int g = piece / kGroupPieces;
    const int within = piece % kGroupPieces;
    uint8_t* half = (within < kGroupPieces / 2 ? row.a() : row.b()) + g * 16 + within % (kGroupPieces / 2) * kValues;
    *reinterpret_cast<uint2*>(half) = make_uint2(words[0], words[1]);
    if (within == 0) row.d()[g] = d;
    // Sums of both halves, where levels have an offset or a minimum.
    constexpr bool kSums = level_offset(F) != 0 || group_bytes(F).d == 4 || group_bytes(F).s == 4;
    if constexpr (kSums) {
      int sum = 0;
#pragma unroll
      for (int w = 0; w < kValues / 4; ++w) sum = __dp4a(static_cast<int>(words[w]), 0x01010101, sum);
#pragma unroll
      for (int step = 1; step < kGroupPieces / 2; step *= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
      const int other = __shfl_down_sync(kFullMask, sum, kGroupPieces / 2);
      if (within == 0) {
        row.sums()[g] = (static_cast<uint32_t>(sum) & 0xffffU) | static_cast<uint32_t>(other) << 16;
      }
    }
  }
  static __device__ __forceinline__ uint32_t pack_levels(int a, int b, int c, int d) {
    uint32_t high;
    uint32_t all;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(d), "r"(c));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(b), "r"(a), "r"(high));
    return all;
  }
};

// The first kThreads threads of the block load a row of k values, k a multiple of 8, kAhead of them before the first is
// used.
//
// A thread loads pieces of kValues contiguous values, kPieces of them in flight. The loop over pieces is not unrolled:
// a kernel this short spends much of its time fetching instructions, so its code has to be small.
template <DType F, int kThreads, int kAhead = 4096>
class StreamActivations {
 public:
  __device__ __forceinline__ StreamActivations(const VectorProduct& p, int units, uint8_t* x, float* partial)
      : from_(p.x + (p.row_ids != nullptr ? int64_t{p.row_ids[0]} * p.k : 0)),
        norm_(p.norm),
        eps_(p.eps),
        k_(p.k),
        groups_(units * 32),
        x_(x),
        writer_{x, units * 32},
        partial_(partial) {
    load_weights();
  }

  // Starts loading the row; after wait_for_previous().
  __device__ __forceinline__ void prefetch() { load_all(0, from_, values_); }

  // On return all threads see the whole row; after prefetch(). `partial`: one float per warp.
  __device__ __forceinline__ void run() {
    if constexpr (F == DType::f16) {
      run_f16();
    } else {
      float squares = 0;
      each_piece([&](int piece, float* values, const float* weights) {
#pragma unroll
        for (int c = 0; c < kValues; ++c) {
          squares = fmaf(values[c], values[c], squares);
          values[c] *= weights[c];
        }
        writer_.put(piece, values);
      });
      if (norm_ != nullptr) partial_[threadIdx.x / kWarp] = warp_sum(squares);
      sync_first<kThreads>();
    }
  }

  // The factor of all products; after run().
  __device__ __forceinline__ float factor() const {
    if constexpr (F == DType::f16) return factor_;
    return norm_ != nullptr ? norm_factor() : 1.0F;
  }

 private:
  static constexpr int kValues = ActivationWriter<F>::kValues;
  static constexpr int kPieces = kAhead / kThreads / kValues;
  static constexpr float kLargestHalf = 65504.0F;
  using Pieces = float[kPieces][kValues];

  // Of the row, the zero padding included.
  [[nodiscard]] __device__ __forceinline__ int pieces() const { return groups_ * (32 / kValues); }
  [[nodiscard]] static __device__ __forceinline__ int at(int piece) {
    return piece * kThreads + static_cast<int>(threadIdx.x);
  }

  __device__ __forceinline__ void load(int piece, const float* from, float* v) const {
    const int i = at(piece) * kValues;
#pragma unroll
    for (int c = 0; c < kValues; c += 4) {
      const float4 four = i < k_ ? load_fresh4(from + i + c) : make_float4(0, 0, 0, 0);
      v[c] = four.x, v[c + 1] = four.y, v[c + 2] = four.z, v[c + 3] = four.w;
    }
  }
  __device__ __forceinline__ void load_all(int first, const float* from, Pieces& v) const {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) load(first + j, from, v[j]);
  }
  // The norm's weights; ones where there is no norm.
  __device__ __forceinline__ void load_weights() {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
#pragma unroll
      for (int c = 0; c < kValues; ++c) weights_[j][c] = 1;
    }
    if (norm_ != nullptr) load_all(0, norm_, weights_);
  }
  // Calls work(piece, values, norm weights) for the thread's pieces in order, and consumes values_ and weights_. Warps
  // do not diverge: the number of pieces is a multiple of 128.
  template <typename Work>
  __device__ __forceinline__ void each_piece(Work work) {
#pragma unroll 1
    for (int piece = 0; at(piece) < pieces(); ++piece) {
      work(at(piece), values_[0], weights_[0]);
#pragma unroll
      for (int j = 1; j < kPieces; ++j) {
#pragma unroll
        for (int c = 0; c < kValues; ++c) values_[j - 1][c] = values_[j][c], weights_[j - 1][c] = weights_[j][c];
      }
      if ((piece + kPieces) * kThreads < pieces()) {
        load(piece + kPieces, from_, values_[kPieces - 1]);
        if (norm_ != nullptr) load(piece + kPieces, norm_, weights_[kPieces - 1]);
      }
    }
  }
  [[nodiscard]] __device__ __forceinline__ float norm_factor() const {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kThreads / kWarp; ++w) sum += partial_[w];
    return rsqrtf(__fdividef(sum, static_cast<float>(k_)) + eps_);
  }

  // The factor first; then, if a value is still too large for f16, the row scaled down, as two values each.
  __device__ __forceinline__ void run_f16() {
    float factor = 1;
    if (norm_ != nullptr) {
      float squares = 0;
#pragma unroll 1
      for (int piece = 0;;) {
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
#pragma unroll
          for (int c = 0; c < kValues; ++c) squares = fmaf(values_[j][c], values_[j][c], squares);
        }
        piece += kPieces;
        if (piece * kThreads >= pieces()) break;
        load_all(piece, from_, values_);
      }
      partial_[threadIdx.x / kWarp] = warp_sum(squares);
      sync_first<kThreads>();
      factor = norm_factor();
      if (kPieces * kThreads < pieces()) prefetch();
    }
    float downscale = 1;
#pragma unroll 1
    for (;;) {
      float largest = 0;
      each_piece([&](int piece, const float* values, const float* weights) {
        uint32_t pairs[kValues / 2];
        uint32_t residuals[kValues / 2];
#pragma unroll
        for (int c = 0; c < kValues; c += 2) {
          const float a = values[c] * (factor * weights[c]) * downscale;
          const float b = values[c + 1] * (factor * weights[c + 1]) * downscale;
          largest = fmaxf(largest, fmaxf(fabsf(a), fabsf(b)));
          pairs[c / 2] = pack_pair<__half>(a, b);
          residuals[c / 2] = downscale == 1.0F ? 0U
                                               : pack_pair<__half>((a - round_f16(a)) * kResidualScale,
                                                                   (b - round_f16(b)) * kResidualScale);
        }
        auto* to = reinterpret_cast<uint4*>(x_) + piece;
        to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        to[groups_ * 4] = make_uint4(residuals[0], residuals[1], residuals[2], residuals[3]);
      });
      if (!sync_first_or<kThreads>(largest > kLargestHalf && downscale == 1.0F)) break;
      partial_[threadIdx.x / kWarp] = warp_max(largest);
      sync_first<kThreads>();
#pragma unroll
      for (int w = 0; w < kThreads / kWarp; ++w) largest = fmaxf(largest, partial_[w]);
      // The power of two that brings the largest value below 2^15.
      const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
      downscale = __uint_as_float(static_cast<uint32_t>(127 + 14 - exponent) << 23);
      factor_ = 1.0F / downscale;
      prefetch();
      load_weights();
    }
  }

  const float* from_;
  const float* norm_;
  float eps_;
  int k_;
  int groups_;  // of 32 values, padded to whole units
  uint8_t* x_;
  ActivationWriter<F> writer_;
  float* partial_;
  float factor_ = 1;
  Pieces values_;
  Pieces weights_;
};

}  // namespace inferno::cuda
