// Q5_K: 256 levels of 5 bits in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum.
// value = d * scale * level - dmin * minimum.
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/half.h"

namespace inferno {

struct [[gnu::packed]] BlockQ5_K {
  f16 d;
  f16 dmin;
  uint8_t scales[12];  // see k_scales.h
  uint8_t qh[32];      // level 32p + i (i < 32): its fifth bit is bit p of byte i
  uint8_t qs[128];     // byte 32p + i (i < 32): level 64p + i in the low half, level 64p + 32 + i in the high half
};
static_assert(sizeof(BlockQ5_K) == 176);

// levels[256]: 0..31
void unpack_levels(const BlockQ5_K& block, int8_t* levels) noexcept;
// scales[8], minimums[8]: 0..63
void unpack_scales(const BlockQ5_K& block, uint8_t* scales, uint8_t* minimums) noexcept;
// src[n] and dst[n]; n a multiple of 256
void dequantize(const BlockQ5_K* src, float* dst, int64_t n) noexcept;
void quantize(const float* src, BlockQ5_K* dst, int64_t n) noexcept;
// One weight row times one activation row in blocks of 256, as quant/numerics.h states.
[[nodiscard]] float dot(const BlockQ5_K* row, const ActivationView& x, int64_t k) noexcept;

}  // namespace inferno
