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

// A whole group of 8-bit levels with one scale per 32 columns times four token pairs, in assembly: both halves of a
// block in turn, so that the weights pass as one steady stream, which takes all registers. group: its first block
// (Q8_0's layout); x: pair 0, x3: pair 3. out[half][row pair][token pair].
inline void few_q8_0(const uint8_t* group, const int8_t* x, const int8_t* x3, int64_t blocks, float32x4_t* out) {
  // clang-format off
#define INFERNO_FEW_STEP(w0, w1, x0, x1, x2) \
  "ldr q24, [%[w], #" #w0 "]\n ldr q25, [%[w], #" #w1 "]\n" \
  "ldr q28, [%[x], #" #x0 "]\n ldr q29, [%[x], #" #x1 "]\n ldr q30, [%[x], #" #x2 "]\n ldr q31, [%[x3], #" #x0 "]\n" \
  "zip1 v26.4s, v24.4s, v25.4s\n zip2 v27.4s, v24.4s, v25.4s\n" \
  "smmla v0.4s, v26.16b, v28.16b\n smmla v1.4s, v26.16b, v29.16b\n" \
  "smmla v2.4s, v26.16b, v30.16b\n smmla v3.4s, v26.16b, v31.16b\n" \
  "smmla v4.4s, v27.16b, v28.16b\n smmla v5.4s, v27.16b, v29.16b\n" \
  "smmla v6.4s, v27.16b, v30.16b\n smmla v7.4s, v27.16b, v31.16b\n"
#define INFERNO_FEW_SCALE(sum, running, rows, tokens, product) \
  "fmul v" #product ".4s, v" #rows ".4s, v" #tokens ".4s\n scvtf v" #sum ".4s, v" #sum ".4s\n" \
  "fmla v" #running ".4s, v" #sum ".4s, v" #product ".4s\n"
#define INFERNO_FEW_HALF(d, w0, w1, w2, w3, w4, w5, w6, w7, r0, r1, r2, r3, r4, r5, r6, r7) \
  "movi v0.2d, #0\n movi v1.2d, #0\n movi v2.2d, #0\n movi v3.2d, #0\n" \
  "movi v4.2d, #0\n movi v5.2d, #0\n movi v6.2d, #0\n movi v7.2d, #0\n" \
  INFERNO_FEW_STEP(w0, w1, 0, 16, 32) INFERNO_FEW_STEP(w2, w3, 48, 64, 80) \
  INFERNO_FEW_STEP(w4, w5, 96, 112, 128) INFERNO_FEW_STEP(w6, w7, 144, 160, 176) \
  "ldr d25, [%[w], #" #d "]\n ldr q28, [%[x], #192]\n ldr q29, [%[x], #208]\n ldr q30, [%[x], #224]\n" \
  "ldr q31, [%[x3], #192]\n" \
  "fcvtl v25.4s, v25.4h\n zip1 v24.4s, v25.4s, v25.4s\n zip2 v25.4s, v25.4s, v25.4s\n" \
  INFERNO_FEW_SCALE(0, r0, 24, 28, 26) INFERNO_FEW_SCALE(1, r1, 24, 29, 27) \
  INFERNO_FEW_SCALE(2, r2, 24, 30, 26) INFERNO_FEW_SCALE(3, r3, 24, 31, 27) \
  INFERNO_FEW_SCALE(4, r4, 25, 28, 26) INFERNO_FEW_SCALE(5, r5, 25, 29, 27) \
  INFERNO_FEW_SCALE(6, r6, 25, 30, 26) INFERNO_FEW_SCALE(7, r7, 25, 31, 27)
  __asm__ volatile(
      "movi v8.2d, #0\n movi v9.2d, #0\n movi v10.2d, #0\n movi v11.2d, #0\n"
      "movi v12.2d, #0\n movi v13.2d, #0\n movi v14.2d, #0\n movi v15.2d, #0\n"
      "movi v16.2d, #0\n movi v17.2d, #0\n movi v18.2d, #0\n movi v19.2d, #0\n"
      "movi v20.2d, #0\n movi v21.2d, #0\n movi v22.2d, #0\n movi v23.2d, #0\n"
      ".p2align 5\n"
      "1:\n"
      INFERNO_FEW_HALF(0, 16, 32, 48, 64, 80, 96, 112, 128, 8, 9, 10, 11, 12, 13, 14, 15)
      INFERNO_FEW_HALF(8, 144, 160, 176, 192, 208, 224, 240, 256, 16, 17, 18, 19, 20, 21, 22, 23)
      "add %[w], %[w], #272\n add %[x], %[x], #240\n add %[x3], %[x3], #240\n"
      "subs %[n], %[n], #1\n"
      "b.ne 1b\n"
      "stp q8, q9, [%[out]]\n stp q10, q11, [%[out], #32]\n stp q12, q13, [%[out], #64]\n"
      "stp q14, q15, [%[out], #96]\n stp q16, q17, [%[out], #128]\n stp q18, q19, [%[out], #160]\n"
      "stp q20, q21, [%[out], #192]\n stp q22, q23, [%[out], #224]\n"
      : [w] "+r"(group), [x] "+r"(x), [x3] "+r"(x3), [n] "+r"(blocks)
      : [out] "r"(out)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc",
        "memory");
#undef INFERNO_FEW_STEP
#undef INFERNO_FEW_SCALE
#undef INFERNO_FEW_HALF
  // clang-format on
}

// sums[half]. Both halves of a block before the next one: the weights pass once, as one steady stream.
template <InterleavedFormat kFormat, int kPairs>
inline void few_32(const uint8_t* group, const int8_t* const (&x)[kPairs], int64_t blocks, FewSums<kPairs> (&sums)[2]) {
  using Layout = InterleavedBlock<kFormat>;
  if constexpr (kFormat.bits == 8 && kPairs == 4) {
    static_assert(Layout::kD == 0 && Layout::kTiles == 16 && Layout::kBytes == 272);
    static_assert(kPairStep == 48 && kPairBlock32 == 240 && kPairD32 == 192);
    few_q8_0(group, x[0], x[3], blocks, &sums[0].of[0][0]);
    return;
  }
  FewSums<kPairs> s[2] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* block = group + b * Layout::kBytes;
    for (int half = 0; half < 2; ++half) {
      int8x16_t w[8];
      unpack_tile<kFormat.bits, kFormat.is_signed>(block + Layout::kTiles + half * Layout::kTileBytes, w);
      int32x4_t c[2][kPairs] = {};
      multiply_tile<0, 4>(w, x, b * kPairBlock32, c);
      float32x4_t d[2];
      double_scales(half_scales(block + Layout::kD, half), d);
      for (int j = 0; j < kPairs; ++j) {
        const float32x4_t dx = vreinterpretq_f32_s8(vld1q_s8(x[j] + b * kPairBlock32 + kPairD32));
        for (int i = 0; i < 2; ++i) {
          float32x4_t& sum = s[half].of[i][j];
          sum = vfmaq_f32(sum, to_f32<Layout::kFraction>(c[i][j]), vmulq_f32(d[i], dx));
        }
        if constexpr (kFormat.minimums) {
          float32x4_t m[2];
          double_scales(half_scales(block + Layout::kM, half), m);
          const float32x4_t q_sum = vreinterpretq_f32_s8(vld1q_s8(x[j] + blocks * kPairBlock32 + b * kPairStep));
          for (int i = 0; i < 2; ++i) s[half].of[i][j] = vfmaq_f32(s[half].of[i][j], q_sum, vmulq_f32(m[i], dx));
        }
      }
    }
  }
  sums[0] = s[0];
  sums[1] = s[1];
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

// sums += one super-block of a half.
template <InterleavedFormat kFormat, int kPairs>
inline void add_few_256(const uint8_t* block, int half, const int8_t* const (&x)[kPairs], int64_t at,
                        FewSums<kPairs>& sums) {
  using Layout = InterleavedBlock<kFormat>;
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

template <InterleavedFormat kFormat, int kPairs>
inline void few(const LinearTask& task) {
  const int64_t group_bytes = task.k / kFormat.block * InterleavedBlock<kFormat>::kBytes;
  const int8_t* x[kPairs];
  for (int j = 0; j < kPairs; ++j) {
    x[j] = static_cast<const int8_t*>(task.activations) + pair_offset<kFormat.block>(j, task.k);
  }
  for (int64_t row = task.row_begin; row < task.row_end; row += kInterleavedRows) {
    const uint8_t* group = static_cast<const uint8_t*>(task.weight) + row / kInterleavedRows * group_bytes;
    FewSums<kPairs> sums[2] = {};
    if constexpr (kFormat.block == 32) {
      few_32<kFormat>(group, x, task.k / 32, sums);
    } else {
      for (int64_t b = 0; b < task.k / 256; ++b) {
        const uint8_t* block = group + b * InterleavedBlock<kFormat>::kBytes;
        for (int half = 0; half < 2; ++half) add_few_256<kFormat>(block, half, x, b * kPairBlock256, sums[half]);
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
