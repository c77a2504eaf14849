// Quantized weights times four to eight tokens with the 8-bit matrix instructions: small batches. Every weight is read
// once and meets all tokens, so unpacking it into a panel first (gemm.h) would cost more than the product: levels are
// brought into the instruction's order in registers. Bit-equal to quant/numerics.h.
//
// Four rows of a group at a time: row pairs (0,1) and (2,3) x up to four token pairs.
#pragma once

#include "backend/cpu/kernels/arm/gemm_activations.h"
#include "backend/cpu/kernels/arm/gemv.h"

namespace inferno {
namespace {

inline constexpr int64_t kFewTokens = 8;

// Vectors of 4 columns x 4 rows -> vectors of 8 columns x 2 rows.
inline int8x16_t rows_01(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s32(vzip1q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}
inline int8x16_t rows_23(int8x16_t a, int8x16_t b) {
  return vreinterpretq_s8_s32(vzip2q_s32(vreinterpretq_s32_s8(a), vreinterpretq_s32_s8(b)));
}

// [row pair][token pair], each a 2 x 2 result.
template <int kPairs>
struct FewSums {
  float32x4_t of[2][kPairs];
};

// Four scales, one per row, doubled for the two row pairs.
inline void double_scales(float32x4_t scales, float32x4_t (&out)[2]) {
  out[0] = vzip1q_f32(scales, scales);
  out[1] = vzip2q_f32(scales, scales);
}
inline float32x4_t half_scales(const uint8_t* f16, int half) {
  const EightScales d = load_scales(f16);
  return half == 0 ? d.low : d.high;
}

// c += steps [first, last) of 8 columns of a tile. x[j]: the pair's vector of step 0 of the tile.
template <int kFirst, int kLast, int kPairs>
inline void multiply_tile(const int8x16_t (&w)[8], const int8_t* const (&x)[kPairs], int64_t at,
                          int32x4_t (&c)[2][kPairs]) {
  for (int s = kFirst; s < kLast; ++s) {
    const int8x16_t first = rows_01(w[2 * s], w[2 * s + 1]);
    const int8x16_t second = rows_23(w[2 * s], w[2 * s + 1]);
    for (int j = 0; j < kPairs; ++j) {
      const int8x16_t token = vld1q_s8(x[j] + at + s * kPairStep);
      c[0][j] = vmmlaq_s32(c[0][j], first, token);
      c[1][j] = vmmlaq_s32(c[1][j], second, token);
    }
  }
}

template <InterleavedFormat kFormat, int kPairs>
inline void few_32(const uint8_t* group, int half, const int8_t* const (&x)[kPairs], int64_t blocks,
                   FewSums<kPairs>& sums) {
  using Layout = InterleavedBlock<kFormat>;
  FewSums<kPairs> s = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    int8x16_t w[8];
    unpack_tile<kFormat.bits, kFormat.is_signed>(block + Layout::kTiles + half * Layout::kTileBytes, w);
    int32x4_t c[2][kPairs] = {};
    multiply_tile<0, 4>(w, x, b * kPairBlock32, c);
    float32x4_t d[2];
    double_scales(half_scales(block + Layout::kD, half), d);
    for (int j = 0; j < kPairs; ++j) {
      const float32x4_t dx = vreinterpretq_f32_s8(vld1q_s8(x[j] + b * kPairBlock32 + kPairD32));
      for (int i = 0; i < 2; ++i) {
        s.of[i][j] = vfmaq_f32(s.of[i][j], to_f32<Layout::kFraction>(c[i][j]), vmulq_f32(d[i], dx));
      }
      if constexpr (kFormat.minimums) {
        float32x4_t m[2];
        double_scales(half_scales(block + Layout::kM, half), m);
        const float32x4_t q_sum = vreinterpretq_f32_s8(vld1q_s8(x[j] + blocks * kPairBlock32 + b * kPairStep));
        for (int i = 0; i < 2; ++i) s.of[i][j] = vfmaq_f32(s.of[i][j], q_sum, vmulq_f32(m[i], dx));
      }
    }
  }
  sums = s;
}

// One super-block: isum = the integer sums over its sub-blocks, scaled.
template <InterleavedFormat kFormat, int kPairs>
inline void few_scaled_sums(const uint8_t* block, int half, const int8_t* const (&x)[kPairs], int64_t at,
                            int32x4_t (&isum)[2][kPairs]) {
  using Layout = InterleavedBlock<kFormat>;
  constexpr int kSubsPerTile = 32 / kFormat.sub;
  constexpr int kTilesPerLoad = 4 / kSubsPerTile;
  const auto scale = [&](const int32x4_t(&c)[2][kPairs], int32x4_t by) {
    const int32x4_t low = vzip1q_s32(by, by);
    const int32x4_t high = vzip2q_s32(by, by);
    for (int j = 0; j < kPairs; ++j) {
      isum[0][j] = vmlaq_s32(isum[0][j], c[0][j], low);
      isum[1][j] = vmlaq_s32(isum[1][j], c[1][j], high);
    }
  };
  for (int first = 0; first < 8; first += kTilesPerLoad) {
    int32x4_t scales[4];
    widen_scales<kFormat>(block + Layout::kScales + half * 4 * Layout::kSubs + first * kSubsPerTile * 4, scales);
    for (int i = 0; i < kTilesPerLoad; ++i) {
      const int tile = first + i;
      int8x16_t w[8];
      unpack_tile<kFormat.bits, kFormat.is_signed>(block + Layout::kTiles + (2 * tile + half) * Layout::kTileBytes, w);
      if constexpr (kSubsPerTile == 1) {
        int32x4_t c[2][kPairs] = {};
        multiply_tile<0, 4>(w, x, at + tile * 4 * kPairStep, c);
        scale(c, scales[i]);
      } else {
        int32x4_t c[2][kPairs] = {};
        multiply_tile<0, 2>(w, x, at + tile * 4 * kPairStep, c);
        scale(c, scales[2 * i]);
        int32x4_t e[2][kPairs] = {};
        multiply_tile<2, 4>(w, x, at + tile * 4 * kPairStep, e);
        scale(e, scales[2 * i + 1]);
      }
    }
  }
}

template <InterleavedFormat kFormat, int kPairs>
inline void few_256(const uint8_t* group, int half, const int8_t* const (&x)[kPairs], int64_t blocks,
                    FewSums<kPairs>& sums) {
  using Layout = InterleavedBlock<kFormat>;
  sums = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    const int64_t at = b * kPairBlock256;
    int32x4_t isum[2][kPairs] = {};
    few_scaled_sums<kFormat>(block, half, x, at, isum);
    float32x4_t d[2];
    double_scales(half_scales(block + Layout::kD, half), d);
    float32x4_t m[2] = {};
    int8x16_t mins[2][2] = {};  // [8 sub-blocks][row pair]
    if constexpr (kFormat.minimums) {
      double_scales(half_scales(block + Layout::kM, half), m);
      for (int part = 0; part < Layout::kSubs / 8; ++part) {
        int8x16_t four[2];
        for (int i = 0; i < 2; ++i) {
          const uint8x16_t v = vld1q_u8(block + Layout::kMins + half * 4 * Layout::kSubs + 32 * part + 16 * i);
          four[i] = vreinterpretq_s8_u8(kFormat.joined_scales ? vshrq_n_u8(v, 4) : v);
        }
        mins[part][0] = rows_01(four[0], four[1]);
        mins[part][1] = rows_23(four[0], four[1]);
      }
    }
    for (int j = 0; j < kPairs; ++j) {
      const float32x4_t dx = vreinterpretq_f32_s8(vld1q_s8(x[j] + at + kPairD256));
      for (int i = 0; i < 2; ++i) {
        sums.of[i][j] = vfmaq_f32(sums.of[i][j], to_f32<Layout::kFraction>(isum[i][j]), vmulq_f32(d[i], dx));
        if constexpr (kFormat.minimums) {
          const int8_t* q_sums = x[j] + at + (kFormat.sub == 32 ? kPairSums32 : kPairSums16);
          int32x4_t msum = vdupq_n_s32(0);
          for (int part = 0; part < Layout::kSubs / 8; ++part) {
            msum = vmmlaq_s32(msum, mins[part][i], vld1q_s8(q_sums + kPairStep * 2 * part));
          }
          msum = vshlq_n_s32(msum, 6);
          for (int part = 0; part < Layout::kSubs / 8; ++part) {
            msum = vmmlaq_s32(msum, mins[part][i], vld1q_s8(q_sums + kPairStep * (2 * part + 1)));
          }
          sums.of[i][j] = vfmsq_f32(sums.of[i][j], vcvtq_f32_s32(msum), vmulq_f32(m[i], dx));
        }
      }
    }
  }
}

template <InterleavedFormat kFormat, int kPairs>
inline void few(const LinearTask& task) {
  const int64_t group_bytes = task.k / kFormat.block * InterleavedBlock<kFormat>::kBytes;
  const int8_t* x[kPairs];
  for (int j = 0; j < kPairs; ++j) {
    x[j] = static_cast<const int8_t*>(task.activations) + pair_offset<kFormat.block>(j, task.k);
  }
  for (int64_t row = task.row_begin; row < task.row_end; row += kInterleavedRows) {
    const uint8_t* group = static_cast<const uint8_t*>(task.weight) + row / kInterleavedRows * group_bytes;
    FewSums<kPairs> sums[2];
    for (int half = 0; half < 2; ++half) {
      if constexpr (kFormat.block == 32) {
        few_32<kFormat>(group, half, x, task.k / 32, sums[half]);
      } else {
        few_256<kFormat>(group, half, x, task.k / 256, sums[half]);
      }
    }
    for (int j = 0; j < kPairs; ++j) {
      const auto& low = sums[0].of;
      const auto& high = sums[1].of;
      const int64_t t = 2 * j;
      put_rows(task, t, row, vuzp1q_f32(low[0][j], low[1][j]), vuzp1q_f32(high[0][j], high[1][j]));
      if (t + 1 == task.tokens) continue;
      put_rows(task, t + 1, row, vuzp2q_f32(low[0][j], low[1][j]), vuzp2q_f32(high[0][j], high[1][j]));
    }
  }
}

// kGemmTokens to kFewTokens tokens.
template <InterleavedFormat kFormat>
inline void run_few(const LinearTask& task) {
  switch ((task.tokens + 1) / 2) {
    case 2:
      return few<kFormat, 2>(task);
    case 3:
      return few<kFormat, 3>(task);
    default:
      return few<kFormat, 4>(task);
  }
}

}  // namespace
}  // namespace inferno
