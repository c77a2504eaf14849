// A tile of the interleaved layout (4 rows x 32 columns) back as 8 vectors of levels: signed ones in the high bits,
// unsigned ones in the low bits of each byte (interleaved.h).
#pragma once

#include <arm_neon.h>

#include "backend/cpu/kernels/interleaved/interleaved.h"

namespace inferno {
namespace {

template <int kBits, bool kSigned>
inline void unpack_tile(const uint8_t* tile, int8x16_t* w) {
  const auto load = [&](int i) { return vld1q_u8(tile + 16 * i); };
  const auto put = [&](int i, uint8x16_t v) { w[i] = vreinterpretq_s8_u8(v); };
  if constexpr (kBits == 8) {
    for (int i = 0; i < 8; ++i) put(i, load(i));
  } else if constexpr (kBits == 4 && kSigned) {
    const uint8x16_t mask = vdupq_n_u8(0xf0);
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t b = load(i);
      put(i, vshlq_n_u8(b, 4));
      put(i + 4, vandq_u8(b, mask));
    }
  } else if constexpr (kBits == 4) {
    const uint8x16_t mask = vdupq_n_u8(0x0f);
    for (int i = 0; i < 4; ++i) {
      const uint8x16_t b = load(i);
      put(i, vandq_u8(b, mask));
      put(i + 4, vshrq_n_u8(b, 4));
    }
  } else if constexpr (kBits == 2) {
    const uint8x16_t mask = vdupq_n_u8(3);
    for (int i = 0; i < 2; ++i) {
      const uint8x16_t b = load(i);
      put(4 * i, vandq_u8(b, mask));
      put(4 * i + 1, vandq_u8(vshrq_n_u8(b, 2), mask));
      put(4 * i + 2, vandq_u8(vshrq_n_u8(b, 4), mask));
      put(4 * i + 3, vshrq_n_u8(b, 6));
    }
  } else if constexpr (kBits == 3) {
    const uint8x16_t mask = vdupq_n_u8(0xe0);
    const uint8x16_t b0 = load(0);
    const uint8x16_t b1 = load(1);
    const uint8x16_t b2 = load(2);
    put(0, vandq_u8(b0, mask));
    put(1, vandq_u8(vshlq_n_u8(b0, 3), mask));
    put(2, vandq_u8(b1, mask));
    put(3, vandq_u8(vshlq_n_u8(b1, 3), mask));
    put(4, vandq_u8(b2, mask));
    put(5, vandq_u8(vshlq_n_u8(b2, 3), mask));
    put(6, vandq_u8(vsliq_n_u8(vshlq_n_u8(b1, 4), b0, 6), mask));
    put(7, vsliq_n_u8(vshlq_n_u8(b2, 5), b1, 7));
  } else if constexpr (kBits == 6) {
    const uint8x16_t mask = vdupq_n_u8(0xfc);
    for (int i = 0; i < 2; ++i) {
      const uint8x16_t b0 = load(3 * i);
      const uint8x16_t b1 = load(3 * i + 1);
      const uint8x16_t b2 = load(3 * i + 2);
      put(4 * i, vandq_u8(b0, mask));
      put(4 * i + 1, vandq_u8(b1, mask));
      put(4 * i + 2, vandq_u8(b2, mask));
      put(4 * i + 3, vsliq_n_u8(vsliq_n_u8(vshlq_n_u8(b2, 2), b1, 4), b0, 6));
    }
  } else if constexpr (kBits == 5 && kSigned) {
    const uint8x16_t mask = vdupq_n_u8(0xf8);
    const uint8x16_t b0 = load(0);
    const uint8x16_t b1 = load(1);
    const uint8x16_t b2 = load(2);
    const uint8x16_t b3 = load(3);
    const uint8x16_t b4 = load(4);
    put(0, vandq_u8(b0, mask));
    put(1, vandq_u8(b1, mask));
    put(2, vandq_u8(b2, mask));
    put(3, vandq_u8(b3, mask));
    put(4, vandq_u8(b4, mask));
    put(5, vandq_u8(vsliq_n_u8(vshlq_n_u8(b1, 2), b0, 5), mask));
    put(6, vandq_u8(vsliq_n_u8(vsliq_n_u8(vshlq_n_u8(b3, 1), b2, 4), b1, 7), mask));
    put(7, vsliq_n_u8(vshlq_n_u8(b4, 3), b3, 6));
  } else {
    static_assert(kBits == 5);
    const uint8x16_t mask = vdupq_n_u8(0x1f);
    const uint8x16_t b0 = load(0);
    const uint8x16_t b1 = load(1);
    const uint8x16_t b2 = load(2);
    const uint8x16_t b3 = load(3);
    const uint8x16_t b4 = load(4);
    put(0, vandq_u8(b0, mask));
    put(1, vandq_u8(b1, mask));
    put(2, vandq_u8(b2, mask));
    put(3, vandq_u8(b3, mask));
    put(4, vandq_u8(b4, mask));
    put(5, vandq_u8(vsriq_n_u8(vshrq_n_u8(b1, 2), b0, 5), mask));
    put(6, vandq_u8(vsriq_n_u8(vsriq_n_u8(vshrq_n_u8(b3, 1), b2, 4), b1, 7), mask));
    put(7, vsriq_n_u8(vshrq_n_u8(b4, 3), b3, 6));
  }
}

// The same for a format, codes of a codebook replaced by what they mean.
template <InterleavedFormat kFormat>
inline void tile_levels(const uint8_t* tile, int8x16_t* w) {
  unpack_tile<kFormat.bits, kFormat.is_signed>(tile, w);
  if constexpr (kFormat.codebook != Codebook::none) {
    const int8x16_t values = vld1q_s8(kCodebooks[static_cast<int>(kFormat.codebook)]);
    for (int i = 0; i < 8; ++i) w[i] = vqtbl1q_s8(values, vreinterpretq_u8_s8(w[i]));
  }
}

// One block's eight f16 scales, widened.
struct EightScales {
  float32x4_t low;   // rows 0-3
  float32x4_t high;  // rows 4-7
};
inline EightScales load_scales(const uint8_t* f16) {
  const float16x8_t d = vreinterpretq_f16_u8(vld1q_u8(f16));
  return {vcvt_f32_f16(vget_low_f16(d)), vcvt_high_f32_f16(d)};
}

// The same of a format's d.
template <InterleavedFormat kFormat>
inline EightScales load_d(const uint8_t* d) {
  if constexpr (kFormat.e8m0_d) {
    // 2^(e - 128) has the high half (e - 1) << 7, and 0x20 and 0x40 for e = 0 and 1, which are subnormal.
    const uint16x8_t e = vmovl_u8(vld1_u8(d));
    const uint16x8_t normal = vqsubq_u16(vshlq_n_u16(e, 7), vdupq_n_u16(0x80));
    const uint16x8_t small = vminq_u16(vshlq_n_u16(vaddq_u16(e, vdupq_n_u16(1)), 5), vdupq_n_u16(0x40));
    const uint16x8_t bits = vmaxq_u16(normal, small);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))};
  } else {
    return load_scales(d);
  }
}

// Sums of levels that are times 2^kFraction, as f32: one rounding, of the quotient.
template <int kFraction>
inline float32x4_t to_f32(int32x4_t sums) {
  if constexpr (kFraction == 0) {
    return vcvtq_f32_s32(sums);
  } else {
    return vcvtq_n_f32_s32(sums, kFraction);
  }
}

}  // namespace
}  // namespace inferno
