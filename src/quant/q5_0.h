// Q5_0: 32 levels of 5 bits around 16 and one scale. value = d * (level - 16).
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/half.h"

namespace inferno {

struct [[gnu::packed]] BlockQ5_0 {
  f16 d;
  uint8_t qh[4];   // little-endian 32 bits: bit i is the fifth bit of level i
  uint8_t qs[16];  // byte i: level i in the low half, level i + 16 in the high half
};
static_assert(sizeof(BlockQ5_0) == 22);

// levels[32]: -16..15, the 16 already taken off
void unpack_levels(const BlockQ5_0& block, int8_t* levels) noexcept;
// src[n] and dst[n]; n a multiple of 32
void dequantize(const BlockQ5_0* src, float* dst, int64_t n) noexcept;
void quantize(const float* src, BlockQ5_0* dst, int64_t n) noexcept;
// One weight row times one activation row in blocks of 32, as quant/numerics.h states.
[[nodiscard]] float dot(const BlockQ5_0* row, const ActivationView& x, int64_t k) noexcept;

}  // namespace inferno
