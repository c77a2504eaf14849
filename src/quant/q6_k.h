// Q6_K: 256 levels of 6 bits around 32 in 16 sub-blocks of 16, each with an 8-bit signed scale.
// value = d * scale * (level - 32).
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/half.h"

namespace inferno {

struct [[gnu::packed]] BlockQ6_K {
  uint8_t ql[128];  // byte 64h + 32p + i (i < 32): low 4 bits of level 128h + 32p + i in the low half, of that + 64 in
                    // the high half
  uint8_t qh[64];   // level 128h + 32p + i (i < 32): its high 2 bits are bits 2p, 2p + 1 of byte 32h + i
  int8_t scales[16];  // one per sub-block
  f16 d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// levels[256]: -32..31, the 32 already taken off
void unpack_levels(const BlockQ6_K& block, int8_t* levels) noexcept;
// src[n] and dst[n]; n a multiple of 256
void dequantize(const BlockQ6_K* src, float* dst, int64_t n) noexcept;
void quantize(const float* src, BlockQ6_K* dst, int64_t n) noexcept;
// One weight row times one activation row in blocks of 256, as quant/numerics.h states.
[[nodiscard]] float dot(const BlockQ6_K* row, const ActivationView& x, int64_t k) noexcept;

}  // namespace inferno
