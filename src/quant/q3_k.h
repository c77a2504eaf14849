// Q3_K: 256 levels of 3 bits around 4 in 16 sub-blocks of 16, each with a 6-bit scale around 32.
// value = d * (scale - 32) * (level - 4).
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/half.h"

namespace inferno {

struct [[gnu::packed]] BlockQ3_K {
  uint8_t hmask[32];   // level 32p + i (i < 32): its third bit is bit p of byte i
  uint8_t qs[64];      // level 128h + 32p + i (i < 32): its low bits are bits 2p, 2p + 1 of byte 32h + i
  uint8_t scales[12];  // scale j: low 4 bits in half j / 8 of byte j % 8, high 2 in bits 2(j / 4).. of byte 8 + j % 4
  f16 d;
};
static_assert(sizeof(BlockQ3_K) == 110);

// levels[256]: -4..3, the 4 already taken off
void unpack_levels(const BlockQ3_K& block, int8_t* levels) noexcept;
// scales[16]: -32..31, the 32 already taken off
void unpack_scales(const BlockQ3_K& block, int8_t* scales) noexcept;
// src[n] and dst[n]; n a multiple of 256
void dequantize(const BlockQ3_K* src, float* dst, int64_t n) noexcept;
void quantize(const float* src, BlockQ3_K* dst, int64_t n) noexcept;
// One weight row times one activation row in blocks of 256, as quant/numerics.h states.
[[nodiscard]] float dot(const BlockQ3_K* row, const ActivationView& x, int64_t k) noexcept;

}  // namespace inferno
