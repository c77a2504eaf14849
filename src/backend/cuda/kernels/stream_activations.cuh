// The activations of one token on their way into shared memory, in as few steps as there can be: this is what every
// block of a decode step does between the end of the kernel ahead and its first product.
//
// A row x with norm weights w meets the weights as x * w, rounded or quantized; the norm's factor, which is only known
// when the whole row has been seen, multiplies the finished products: rounding to a floating type and quantizing by the
// largest value do not depend on it. F16 has a narrow range, so there the factor comes first.
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

// On tensor cores: one array has the values, rounded to the weights' type; a second (f16 alone) what rounding left,
// times this: for rows that f16 cannot hold, scaled down, both together keep 22 bits.
inline constexpr float kRestScale = 2048.0F;

// The first kThreads threads of the block bring in a row of k values, k a multiple of 8.
template <DType F, int kThreads>
class StreamActivations {
 public:
  __device__ __forceinline__ StreamActivations(const VectorProduct& p, int units, uint8_t* x, float* partial)
      : from_(p.x + (p.row_ids != nullptr ? int64_t{p.row_ids[0]} * p.k : 0)),
        norm_(p.norm),
        eps_(p.eps),
        k_(p.k),
        groups_(units * 32),
        x_(x),
        partial_(partial) {
    if (norm_ != nullptr) load(norm_, 0, weights_);
  }

  // Ends with all threads seeing the whole row. `partial`: one float per warp.
  __device__ __forceinline__ void run() {
    float squares = 0;
    float v[kPieces][kValues];
    load(from_, 0, v);
    if constexpr (F == DType::f16) {
      run_f16(v);
      return;
    }
    add_squares(v, squares);
    put_all(0, v);
#pragma unroll 1
    for (int piece = kPieces; piece * kThreads < pieces(); piece += kPieces) {
      load(from_, piece, v);
      if (norm_ != nullptr) load(norm_, piece, weights_);
      add_squares(v, squares);
      put_all(piece, v);
    }
    if (norm_ != nullptr) partial_[threadIdx.x / kWarp] = warp_sum(squares);
    sync_first<kThreads>();
  }

  // What products are to be multiplied with; after run().
  __device__ __forceinline__ float factor() const {
    if constexpr (F == DType::f16) return factor_;
    return norm_ != nullptr ? norm_factor() : 1.0F;
  }

 private:
  static constexpr Activation kKind = stream_activation<F>();
  static constexpr int kValues = kKind == Activation::quant256 ? 8 : 4;  // of a piece, which one thread has
  static constexpr int kPieces = 4096 / kThreads / kValues;              // under way at a time
  static constexpr float kLargestHalf = 65504.0F;
  using Pieces = float[kPieces][kValues];

  // Of the row, zeros behind it included.
  [[nodiscard]] __device__ __forceinline__ int pieces() const { return groups_ * (32 / kValues); }
  [[nodiscard]] static __device__ __forceinline__ int at(int piece) {
    return piece * kThreads + static_cast<int>(threadIdx.x);
  }

  __device__ __forceinline__ void load(const float* from, int first, Pieces& v) const {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int i = at(first + j) * kValues;
#pragma unroll
      for (int c = 0; c < kValues; c += 4) {
        const float4 four = i < k_ ? load_fresh4(from + i + c) : make_float4(0, 0, 0, 0);
        v[j][c] = four.x, v[j][c + 1] = four.y, v[j][c + 2] = four.z, v[j][c + 3] = four.w;
      }
    }
  }
  // Squares of the values, and the values times the norm's weights.
  __device__ __forceinline__ void add_squares(Pieces& v, float& squares) const {
    if (norm_ == nullptr) return;
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      float sum = 0;
#pragma unroll
      for (int c = 0; c < kValues; ++c) {
        sum = fmaf(v[j][c], v[j][c], sum);
        v[j][c] *= weights_[j][c];
      }
      squares += sum;
    }
  }
  [[nodiscard]] __device__ __forceinline__ float norm_factor() const {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kThreads / kWarp; ++w) sum += partial_[w];
    return rsqrtf(__fdividef(sum, static_cast<float>(k_)) + eps_);
  }

  // Whole warps stay together: the number of pieces is a multiple of 128.
  __device__ __forceinline__ void put_all(int first, const Pieces& v) const {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      if (at(first + j) < pieces()) put(at(first + j), v[j]);
    }
  }
  __device__ __forceinline__ void put(int piece, const float* v) const {
    if constexpr (kKind == Activation::halves) {
      using T = std::conditional_t<F == DType::f16, __half, __nv_bfloat16>;
      reinterpret_cast<uint2*>(x_)[piece] = make_uint2(pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]));
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
    // Too small for a reciprocal: all zero. A NaN or an infinity makes d one too, and so every product.
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
    const XQuant row{x_, groups_};
    const int g = piece / kGroupPieces;
    const int within = piece % kGroupPieces;
    uint8_t* half = (within < kGroupPieces / 2 ? row.a() : row.b()) + g * 16 + within % (kGroupPieces / 2) * kValues;
    if constexpr (kValues == 8) {
      *reinterpret_cast<uint2*>(half) = make_uint2(words[0], words[1]);
    } else {
      *reinterpret_cast<uint32_t*>(half) = words[0];
    }
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

  // The factor first; then, if a value is still too large for f16, the row scaled down, as two values each.
  __device__ __forceinline__ void run_f16(Pieces& v) {
    float factor = 1;
    if (norm_ != nullptr) {
      float squares = 0;
      const auto piece_squares = [&] {
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
#pragma unroll
          for (int c = 0; c < kValues; ++c) squares = fmaf(v[j][c], v[j][c], squares);
        }
      };
      piece_squares();
#pragma unroll 1
      for (int piece = kPieces; piece * kThreads < pieces(); piece += kPieces) {
        load(from_, piece, v);
        piece_squares();
      }
      partial_[threadIdx.x / kWarp] = warp_sum(squares);
      sync_first<kThreads>();
      factor = norm_factor();
      if (kPieces * kThreads < pieces()) load(from_, 0, v);
    }
    float largest = 0;
    put_f16(v, factor, 1, largest);
    if (sync_first_or<kThreads>(largest > kLargestHalf)) {
      partial_[threadIdx.x / kWarp] = warp_max(largest);
      sync_first<kThreads>();
#pragma unroll
      for (int w = 0; w < kThreads / kWarp; ++w) largest = fmaxf(largest, partial_[w]);
      // The power of two that brings the largest value below 2^15.
      const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
      const float down = __uint_as_float(static_cast<uint32_t>(127 + 14 - exponent) << 23);
      load(from_, 0, v);
      if (norm_ != nullptr) load(norm_, 0, weights_);
      put_f16(v, factor, down, largest);
      sync_first<kThreads>();
      factor_ = 1.0F / down;
    }
  }
  __device__ __forceinline__ void put_f16(Pieces& v, float factor, float down, float& largest) {
    for (int piece = 0;;) {
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const int i = at(piece + j);
        if (i >= pieces()) break;
        uint32_t pairs[4];
#pragma unroll
        for (int c = 0; c < kValues; c += 2) {
          const float a = v[j][c] * (norm_ != nullptr ? factor * weights_[j][c] : 1.0F) * down;
          const float b = v[j][c + 1] * (norm_ != nullptr ? factor * weights_[j][c + 1] : 1.0F) * down;
          largest = fmaxf(largest, fmaxf(fabsf(a), fabsf(b)));
          pairs[c / 2] = pack_pair<__half>(a, b);
          const bool rests = down != 1.0F;
          pairs[2 + c / 2] =
              rests ? pack_pair<__half>((a - round_f16(a)) * kRestScale, (b - round_f16(b)) * kRestScale) : 0U;
        }
        reinterpret_cast<uint2*>(x_)[i] = make_uint2(pairs[0], pairs[1]);
        reinterpret_cast<uint2*>(x_)[groups_ * 8 + i] = make_uint2(pairs[2], pairs[3]);
      }
      piece += kPieces;
      if (piece * kThreads >= pieces()) break;
      load(from_, piece, v);
      if (norm_ != nullptr) load(norm_, piece, weights_);
    }
  }

  const float* from_;
  const float* norm_;
  float eps_;
  int k_;
  int groups_;  // of 32 values, padded to whole units
  uint8_t* x_;
  float* partial_;
  float factor_ = 1;
  Pieces weights_;
};

}  // namespace inferno::cuda
