// A tile of quantized rows times a slice of the activations of up to eight tokens on tensor cores, in 8 bits (compute
// capability 9.0).
//
// A tile has 16 rows, a slice four groups of 32 columns. Against quant_tile.cuh, which scales the result of each group
// as floats, this takes a third of the instructions for K formats: their activations have one scale per slice, so that
// groups are scaled by integers, and minima (offsets) of the slice are a product of their own, with the sums of the
// activations' halves of groups, which are exact in 16 bits. A lane keeps the slice's activations for several tiles.
// The layout of the planes in lanes is that of quant_tile.cuh.
#pragma once

#include "backend/cuda/kernels/quant_tile.cuh"

namespace inferno::cuda {

inline constexpr int kSliceGroups = 4;
inline constexpr int kSliceColumns = kSliceGroups * kGroup;

// Whether the activations of a slice have one scale, and sums as two f16 per group.
__host__ __device__ constexpr bool has_slice_scale(DType dtype) {
  return format_of(dtype).block == 256;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// c (16 x 8, f32) = a (16 x 8, f16) * b (8 x 8, f16).
__device__ __forceinline__ void mma_8(float* c, uint32_t a0, uint32_t a1, uint32_t b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a0), "r"(a1), "r"(b), "f"(0.0F));
}
// The activations of a slice, of all tokens.
template <bool kSliceScale>
struct SliceTokens {
  uint32_t b[2 * kSliceGroups];                // both halves of each group
  float d[kSliceScale ? 1 : kSliceGroups][2];  // columns 2c and 2c + 1
  uint32_t sums;                               // kSliceScale: both halves of group c of column g

  // `x`: the tokens' arrays as XQuant has them, `stride` bytes apart; scales of slices are in place of the first
  // groups'. Columns without a token repeat the last.
  __device__ __forceinline__ void load(uint32_t x, int stride, int tokens, int groups, int slice, int lane) {
    const int first = slice * kSliceGroups;
    const uint32_t operand = x + min(lane % 8, tokens - 1) * stride + (lane / 8 % 2 * groups + lane / 16 + first) * 16;
    load_matrices(b, operand);
    load_matrices(b + 4, operand + 32);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint32_t scales = x + min(lane % 4 * 2 + e, tokens - 1) * stride + groups * 32;
      if constexpr (kSliceScale) {
        d[0][e] = __uint_as_float(load_shared_4(scales + slice * 4));
      } else {
        const uint4 all = load_shared_16(scales + slice * 16);
        d[0][e] = __uint_as_float(all.x);
        d[1][e] = __uint_as_float(all.y);
        d[2][e] = __uint_as_float(all.z);
        d[3][e] = __uint_as_float(all.w);
      }
    }
    sums = 0;
    if constexpr (kSliceScale) {
      sums = load_shared_4(x + min(lane / 4, tokens - 1) * stride + groups * 36 + (first + lane % 4) * 4);
    }
  }
};

// Q8_0, Q4_0, Q4_K and Q6_K.
template <DType F>
struct SliceTile {
  static_assert(F == DType::q8_0 || F == DType::q4_0 || F == DType::q4_k || F == DType::q6_k);
  static constexpr bool kSliceScale = has_slice_scale(F);
  static constexpr bool kHalves = F == DType::q6_k;  // of a group have scales of their own
  using Tokens = SliceTokens<kSliceScale>;
  using Rows = typename QuantTile<F>::Rows;

  int lane;

  // acc (rows g and g + 8, columns 2c and 2c + 1) plus the product of slice `slice` of the rows. `groups`: from values
  // 0..15 to 16..31 of a group of 8 bits. kSwizzle, kHighSwizzle: bits of the addresses of planes q and h that are
  // exclusive ors with those three above them, as the copy engine stores rows of 64 bytes (0x30) or 128 (0x70).
  template <uint32_t kSwizzle = 0, uint32_t kHighSwizzle = 0>
  __device__ __forceinline__ void add(const Rows& rows, int groups, int slice, const Tokens& x, float* acc) const {
    uint32_t a[kSliceGroups][4];
    load_levels<kSwizzle, kHighSwizzle>(rows, groups, slice, a);
    uint2 s[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) s[i] = load_shared_8(rows.s[i] + slice * 8);
    if constexpr (kSliceScale) {
      add_integers(rows, slice, a, s, x, acc);
    } else {
      add_groups(a, s, x, acc);
    }
  }

 private:
  static __device__ __forceinline__ uint32_t swizzled(uint32_t at, uint32_t bits) { return at ^ (at >> 3 & bits); }

  // Q4_0: sixteen times the level less the offset; Q6_K: with the offset.
  template <uint32_t kSwizzle, uint32_t kHighSwizzle>
  __device__ __forceinline__ void load_levels(const Rows& rows, int groups, int slice, uint32_t (&a)[4][4]) const {
    const int first = slice * kSliceGroups;
    if constexpr (F == DType::q8_0) {
#pragma unroll
      for (int j = 0; j < kSliceGroups; ++j) {
        load_matrices(a[j], swizzled(rows.q + (lane / 16 * groups + first + j) * 16, kSwizzle));
      }
    } else {
#pragma unroll
      for (int j = 0; j < kSliceGroups; j += 2) {
        uint32_t both[4];
        load_matrices(both, swizzled(rows.q + (lane / 16 + first + j) * 16, kSwizzle));
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          uint32_t(&to)[4] = a[j + n / 2];
          if constexpr (F == DType::q4_0) {
            to[n % 2] = (both[n] << 4 ^ 0x80808080U) & 0xf0f0f0f0U;
            to[2 + n % 2] = (both[n] ^ 0x80808080U) & 0xf0f0f0f0U;
          } else {
            to[n % 2] = both[n] & 0x0f0f0f0fU;
            to[2 + n % 2] = both[n] >> 4 & 0x0f0f0f0fU;
          }
        }
      }
    }
    if constexpr (F == DType::q6_k) {
      const int turn = (4 - 2 * (lane % 4)) & 31;  // brings this lane's bits of each byte to bits 4 and 5
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < kSliceGroups; j += 2) {
          const uint4 h = load_shared_16(swizzled(rows.h[i] + (first + j) * 8, kHighSwizzle));
          a[j][i] |= __funnelshift_l(h.x, h.x, turn) & 0x30303030U;
          a[j][2 + i] |= __funnelshift_l(h.y, h.y, turn) & 0x30303030U;
          a[j + 1][i] |= __funnelshift_l(h.z, h.z, turn) & 0x30303030U;
          a[j + 1][2 + i] |= __funnelshift_l(h.w, h.w, turn) & 0x30303030U;
        }
      }
    }
  }

  // One scale per group.
  __device__ __forceinline__ void add_groups(const uint32_t (&a)[4][4], const uint2 (&s)[2], const Tokens& x,
                                             float* acc) const {
    constexpr float kUnit = F == DType::q4_0 ? 1.0F / 16 : 1.0F;
#pragma unroll
    for (int j = 0; j < kSliceGroups; ++j) {
      int sum[4] = {};
      mma_s8(sum, a[j], x.b[2 * j], x.b[2 * j + 1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t pair = j < 2 ? s[i].x : s[i].y;
        const float scale = half_bits(j % 2 == 0 ? pair & 0xffffU : pair >> 16) * kUnit;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          acc[2 * i + e] = fmaf(static_cast<float>(sum[2 * i + e]), scale * x.d[j][e], acc[2 * i + e]);
        }
      }
    }
  }

  // Integer scales per group or half of one.
  __device__ __forceinline__ void add_integers(const Rows& rows, int slice, const uint32_t (&a)[4][4],
                                               const uint2 (&s)[2], const Tokens& x, float* acc) const {
    int sum[4] = {};
#pragma unroll
    for (int j = 0; j < kSliceGroups; ++j) {
      int low[4] = {};
      int high[4] = {};
      if constexpr (kHalves) {
        mma_s8(low, a[j][0], a[j][1], x.b[2 * j]);
        mma_s8(high, a[j][2], a[j][3], x.b[2 * j + 1]);
      } else {
        mma_s8(low, a[j], x.b[2 * j], x.b[2 * j + 1]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint32_t bytes = (j < 2 ? s[n / 2].x : s[n / 2].y) >> j % 2 * 16;
        if constexpr (kHalves) {
          sum[n] += static_cast<int8_t>(bytes & 0xffU) * low[n] + static_cast<int8_t>(bytes >> 8 & 0xffU) * high[n];
        } else {
          sum[n] += static_cast<int>(bytes & 0xffU) * low[n];
        }
      }
    }
    // Minima of group c for both of its halves; Q6_K: the scales, whose product is 32 times too small. As f16: 1024
    // plus a byte (its sign bit inverted), less 1024 (1152).
    const int c = lane % 4;
    const uint32_t select = kHalves ? 2 * c | (2 * c + 1) << 8 : (2 * c + 1) * 0x101;
    uint32_t m[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      constexpr uint32_t kBias = kHalves ? 0x64806480U : 0x64006400U;
      const uint32_t bits = (__byte_perm(s[i].x, s[i].y, select) & 0x00ff00ffU) ^ kBias;
      const __half2 value = __hsub2(reinterpret_cast<const __half2&>(bits), reinterpret_cast<const __half2&>(kBias));
      m[i] = reinterpret_cast<const uint32_t&>(value);
    }
    float least[4];
    mma_8(least, m[0], m[1], x.sums);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float d = 0;
      float minimum = 0;
      if constexpr (kHalves) {
        d = half_bits(load_shared_2(rows.d[i] + slice / 2 * 2));
        minimum = d * 32;
      } else {
        const uint32_t both = load_shared_4(rows.d[i] + slice / 2 * 4);
        d = half_bits(both & 0xffffU);
        minimum = half_bits(both >> 16);
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int n = 2 * i + e;
        acc[n] = fmaf(x.d[0][e], fmaf(static_cast<float>(sum[n]), d, -(least[n] * minimum)), acc[n]);
      }
    }
  }
};

#endif

}  // namespace inferno::cuda
