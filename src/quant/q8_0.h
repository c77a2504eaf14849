// Q8_0: 32 signed 8-bit levels and one scale. value = d * level.
//
// Block structs are GGUF's on-disk layout, packed so that a block may stand at any address.
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/half.h"

namespace inferno {

struct [[gnu::packed]] BlockQ8_0 {
  f16 d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// levels[32]
void unpack_levels(const BlockQ8_0& block, int8_t* levels) noexcept;
// src[n] and dst[n]; n a multiple of 32
void dequantize(const BlockQ8_0* src, float* dst, int64_t n) noexcept;
void quantize(const float* src, BlockQ8_0* dst, int64_t n) noexcept;
// One weight row times one activation row in blocks of 32, as quant/numerics.h states.
[[nodiscard]] float dot(const BlockQ8_0* row, const ActivationView& x, int64_t k) noexcept;

}  // namespace inferno
