// Q4_1: 32 levels of 4 bits, a scale and an offset. value = d * level + m.
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/half.h"

namespace inferno {

struct [[gnu::packed]] BlockQ4_1 {
  f16 d;
  f16 m;
  uint8_t qs[16];  // byte i: level i in the low half, level i + 16 in the high half
};
static_assert(sizeof(BlockQ4_1) == 20);

// levels[32]: 0..15
void unpack_levels(const BlockQ4_1& block, int8_t* levels) noexcept;
// src[n] and dst[n]; n a multiple of 32
void dequantize(const BlockQ4_1* src, float* dst, int64_t n) noexcept;
void quantize(const float* src, BlockQ4_1* dst, int64_t n) noexcept;
// One weight row times one activation row in blocks of 32, as quant/numerics.h states.
[[nodiscard]] float dot(const BlockQ4_1* row, const ActivationView& x, int64_t k) noexcept;

}  // namespace inferno
