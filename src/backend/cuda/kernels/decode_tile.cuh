// The parts of attention_decode.cu: its parameters, a warp's tile of the cache, and a head from its raw projection.
#pragma once

#include "backend/cuda/kernels/heads.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/mma.cuh"

namespace inferno::cuda {

inline constexpr int kTile = 16;     // positions of a warp's tile
inline constexpr int kMaxGroup = 8;  // query heads per kv head

struct DecodeParams {
  DecodeAttention a;
  const float* rope_table = nullptr;
  int splits = 1;      // blocks per pair, a multiple of cluster
  int cluster = 1;     // 1 or 2
  int page_shift = 0;  // the page size is a power of two
};

// A warp's tile of K and V in shared memory. Each lane prefetches the pieces of 16 bytes that it will use itself,
// asynchronously; piece i of lane l is stored at i * 512 + l * 16.
template <typename T, int kDim>
struct WarpTile {
  static constexpr int kKeyPieces = 2 * kDim / 32;      // [8 positions][64 bytes]: position g, bytes 16 c .. of them
  static constexpr int kValuePieces = 4 * (kDim / 64);  // [64 columns][position 2c, 2c + 1, 2c + 8, 2c + 9]
  static constexpr int kPieceBytes = kWarp * 16;
  static constexpr int kKeyBytes = kKeyPieces * kPieceBytes;
  static constexpr int kBytes = kKeyBytes + kValuePieces * kPieceBytes;
  const uint8_t* first;  // this lane's first piece
  int lane;

  [[nodiscard]] __device__ __forceinline__ uint32_t at() const { return shared_address(first); }

  // Offset in the cache of a tile: 16 positions from `first` on.
  static __device__ __forceinline__ int64_t base(const DecodeParams& p, const int32_t* table, int kv_head, int first) {
    const int64_t page = table[first >> p.page_shift];  // page_size is a multiple of kTile
    const int within = first & (p.a.task.kv.page_size - 1);
    return (((page * p.a.task.kv.kv_heads + kv_head) << p.page_shift) + within) * kDim;
  }
  // Rows beyond `last` repeat it; their weight is zero.
  __device__ __forceinline__ void prefetch_keys(const KvLayerView& kv, int64_t base, int last) const {
    const T* keys = static_cast<const T*>(kv.k) + base;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const T* row = keys + min(n * 8 + lane / 4, last) * kDim + lane % 4 * 8;
#pragma unroll
      for (int j = 0; j < kDim / 32; ++j) copy_async_16(at() + (n * (kDim / 32) + j) * kPieceBytes, row + j * 32, true);
    }
  }
  __device__ __forceinline__ void prefetch_values(const KvLayerView& kv, int64_t base, int last) const {
    const T* values = static_cast<const T*>(kv.v) + base;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const T* row = values + min(2 * (lane % 4) + i % 2 + i / 2 * 8, last) * kDim + lane / 4 * 8;
#pragma unroll
      for (int h = 0; h < kDim / 64; ++h)
        copy_async_16(at() + kKeyBytes + (h * 4 + i) * kPieceBytes, row + h * 64, true);
    }
  }
  __device__ __forceinline__ uint4 keys(int n, int j) const {
    return *reinterpret_cast<const uint4*>(first + (n * (kDim / 32) + j) * kPieceBytes);
  }
  __device__ __forceinline__ uint4 values(int h, int i) const {
    return *reinterpret_cast<const uint4*>(first + kKeyBytes + (h * 4 + i) * kPieceBytes);
  }
};

// Norm weights and rotation of head h of a block: the group's queries, the key, the value.
template <int kDim>
__device__ __forceinline__ void load_factors(HeadFactors<kDim>& factors, const DecodeParams& p, int group, int h,
                                             int position, int lane) {
  factors.load(h < group ? p.a.norms.q : p.a.norms.k, p.rope_table + int64_t{position} * kDim,
               p.a.rope.pairing == RopePairing::half_split, lane);
}

// The lane's words of that head from its raw projection: normalized and rotated, the value as it is.
template <int kDim>
__device__ __forceinline__ void make_head(float2* v, const DecodeParams& p, int group, int kv_head, int64_t t, int h,
                                          const HeadFactors<kDim>& factors, int lane) {
  const RawHeads& raw = p.a.raw;
  const void* from = h < group ? raw.q : h == group ? raw.k : raw.v;
  const int64_t at = 2 * lane + (h < group ? t * raw.q_stride + (kv_head * group + h) * kDim
                                           : t * raw.kv_stride + int64_t{kv_head} * kDim);
#pragma unroll
  for (int w = 0; w < kDim / 64; ++w) {
    v[w] = raw.dtype == DType::f32 ? load_pair(static_cast<const float*>(from) + at + w * 64)
                                   : load_pair(static_cast<const __nv_bfloat16*>(from) + at + w * 64);
  }
  if (h > group) return;
  const bool normalizes = (h < group ? p.a.norms.q : p.a.norms.k) != nullptr;
  factors.apply(v, normalizes, p.a.norms.eps, p.a.rope.pairing == RopePairing::half_split, lane);
}

}  // namespace inferno::cuda
