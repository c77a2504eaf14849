// Q2_K: 256 levels of 2 bits in 16 sub-blocks of 16, each with a 4-bit scale and a 4-bit minimum.
// value = d * scale * level - dmin * minimum.
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/half.h"

namespace inferno {

struct [[gnu::packed]] BlockQ2_K {
  uint8_t scales[16];  // sub-block j: scale in the low half, minimum in the high half
  uint8_t qs[64];      // level 128h + 32p + i (i < 32) is bits 2p, 2p + 1 of byte 32h + i
  f16 d;
  f16 dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

// levels[256]: 0..3
void unpack_levels(const BlockQ2_K& block, int8_t* levels) noexcept;
// scales[16], minimums[16]: 0..15
void unpack_scales(const BlockQ2_K& block, uint8_t* scales, uint8_t* minimums) noexcept;
// src[n] and dst[n]; n a multiple of 256
void dequantize(const BlockQ2_K* src, float* dst, int64_t n) noexcept;
void quantize(const float* src, BlockQ2_K* dst, int64_t n) noexcept;
// One weight row times one activation row in blocks of 256, as quant/numerics.h states.
[[nodiscard]] float dot(const BlockQ2_K* row, const ActivationView& x, int64_t k) noexcept;

}  // namespace inferno
