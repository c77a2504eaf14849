// The tokens' activations for tile_product_kernel, as bf16 in shared memory.
#pragma once

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/tile_types.h"

namespace inferno::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Brings the tokens' values of a unit into shared memory, as tiles of 64 values that wgmma reads. Tokens after the last
// are zero. A thread has the same eight values of every kStep-th token.
template <int N, int kValues, int kThreads = kTileThreads>
class TileActivations {
  static constexpr int kPieces = kValues / 8;
  static constexpr int kStep = kThreads / kPieces;
  static_assert(kStep % 8 == 0 && kPieces <= kWarp);
  static constexpr int kCount = N > kStep ? N / kStep : 1;  // tokens of a thread
  static constexpr int kBatch = kCount < 4 ? kCount : 4;

 public:
  // Of tokens [first, first + N).
  __device__ __forceinline__ TileActivations(const TileProduct& p, int first)
      : p_(p),
        first_(first),
        tokens_(p.tokens - first),
        token_(static_cast<int>(threadIdx.x) / kPieces),
        piece_(static_cast<int>(threadIdx.x) % kPieces),
        place_(piece_ / 8 * (N * 128) + token_ * 128 + ((piece_ % 8 ^ token_ % 8) << 4)) {}

  // Enqueues copies of bf16 values.
  __device__ __forceinline__ void copy(int unit, uint32_t to) const {
    if (kStep > N && token_ >= N) return;
    const auto* from =
        static_cast<const __nv_bfloat16*>(p_.x) + int64_t{first_ + token_} * p_.k + unit * kValues + piece_ * 8;
#pragma unroll
    for (int i = 0; i < N; i += kStep) {
      copy_async_16(to + place_ + i * 128, from, token_ + i < tokens_);
      from += kStep * int64_t{p_.k};
    }
  }

  // Norm weights of a unit, which depend on no other kernel.
  __device__ __forceinline__ void load_norm(int unit, float (&weights)[8]) const {
    load_fresh8(p_.norm + unit * kValues + piece_ * 8, 8, true, weights);
  }
  // Converts f32 values times `weights`, and adds their squares.
  __device__ __forceinline__ void convert(int unit, uint32_t to, const float (&weights)[8]) {
    if (kStep > N && token_ >= N) return;
#pragma unroll
    for (int first = 0; first < kCount; first += kBatch) {
      float v[kBatch][8];
      load(unit, first, v);
      put(to, first, v, weights);
    }
  }
  // The same of `count` units, all of whose values are loaded at once.
  template <int kUnits, typename UnitOf, typename SlotOf>
  __device__ __forceinline__ void convert_all(int count, UnitOf unit_of, SlotOf slot_of,
                                              const float (&weights)[kUnits][8]) {
    static_assert(kCount == kBatch);
    if (kStep > N && token_ >= N) return;
    float v[kUnits][kBatch][8];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (i < count) load(unit_of(i), 0, v[i]);
    }
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (i < count) put(slot_of(i), 0, v[i], weights[i]);
    }
  }
  // Stores each token's squares of all units so far.
  __device__ __forceinline__ void store_squares(uint32_t squares) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int step = kPieces / 2; step > 0; step /= 2) {
        squares_[i] += __shfl_xor_sync(kFullMask, squares_[i], step);
      }
      if (piece_ == 0 && token_ < N) {
        const uint32_t at = squares + static_cast<uint32_t>(token_ + i * kStep) * 4U;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(squares_[i]) : "memory");
      }
    }
  }

 private:
  // Values of the thread's tokens from its `first`-th on.
  __device__ __forceinline__ void load(int unit, int first, float (&v)[kBatch][8]) const {
    const auto* from = static_cast<const float*>(p_.x) + int64_t{first_ + token_} * p_.k + unit * kValues + piece_ * 8;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int t = (first + i) * kStep;
      load_fresh8(from + t * int64_t{p_.k}, token_ + t < tokens_ ? 8 : 0, true, v[i]);
    }
  }
  __device__ __forceinline__ void put(uint32_t to, int first, float (&v)[kBatch][8], const float (&weights)[8]) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        squares_[first + i] = fmaf(v[i][n], v[i][n], squares_[first + i]);
        v[i][n] *= weights[n];
      }
      const uint32_t at = to + place_ + (first + i) * kStep * 128;
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at),
                   "r"(pack_pair<__nv_bfloat16>(v[i][0], v[i][1])), "r"(pack_pair<__nv_bfloat16>(v[i][2], v[i][3])),
                   "r"(pack_pair<__nv_bfloat16>(v[i][4], v[i][5])), "r"(pack_pair<__nv_bfloat16>(v[i][6], v[i][7]))
                   : "memory");
    }
  }

  const TileProduct& p_;
  int first_;
  int tokens_;  // from the first on
  int token_;
  int piece_;
  uint32_t place_;
  float squares_[kCount] = {};
};

#endif

}  // namespace inferno::cuda
