// The blocks of the quantized formats and their reference code, which each has in a file of its own.
//
// Block structs are GGUF's on-disk layout, packed so that a block may stand at any address.
#pragma once

#include <cstdint>

#include "quant/activation.h"
#include "tensor/half.h"
#include "tensor/weight_format.h"

namespace inferno {

// Q8_0: 32 signed 8-bit levels and one scale. value = d * level.
struct [[gnu::packed]] BlockQ8_0 {
  f16 d;
  int8_t qs[32];
};

// Q4_0: 32 levels of 4 bits around 8 and one scale. value = d * (level - 8).
// Levels: -8..7, the 8 already taken off.
struct [[gnu::packed]] BlockQ4_0 {
  f16 d;
  uint8_t qs[16];  // byte i: level i in the low half, level i + 16 in the high half
};

// Q4_1: 32 levels of 4 bits, a scale and an offset. value = d * level + m.
// Levels: 0..15.
struct [[gnu::packed]] BlockQ4_1 {
  f16 d;
  f16 m;
  uint8_t qs[16];  // byte i: level i in the low half, level i + 16 in the high half
};

// Q5_0: 32 levels of 5 bits around 16 and one scale. value = d * (level - 16).
// Levels: -16..15, the 16 already taken off.
struct [[gnu::packed]] BlockQ5_0 {
  f16 d;
  uint8_t qh[4];   // little-endian 32 bits: bit i is the fifth bit of level i
  uint8_t qs[16];  // byte i: level i in the low half, level i + 16 in the high half
};

// Q5_1: 32 levels of 5 bits, a scale and an offset. value = d * level + m.
// Levels: 0..31.
struct [[gnu::packed]] BlockQ5_1 {
  f16 d;
  f16 m;
  uint8_t qh[4];   // little-endian 32 bits: bit i is the fifth bit of level i
  uint8_t qs[16];  // byte i: level i in the low half, level i + 16 in the high half
};

// Q2_K: 256 levels of 2 bits in 16 sub-blocks of 16, each with a 4-bit scale and a 4-bit minimum.
// value = d * scale * level - dmin * minimum.
// Levels: 0..3.
struct [[gnu::packed]] BlockQ2_K {
  uint8_t scales[16];  // sub-block j: scale in the low half, minimum in the high half
  uint8_t qs[64];      // level 128h + 32p + i (i < 32) is bits 2p, 2p + 1 of byte 32h + i
  f16 d;
  f16 dmin;
};
// scales[16], minimums[16]: 0..15
void unpack_scales(const BlockQ2_K& block, uint8_t* scales, uint8_t* minimums) noexcept;

// Q3_K: 256 levels of 3 bits around 4 in 16 sub-blocks of 16, each with a 6-bit scale around 32.
// value = d * (scale - 32) * (level - 4).
// Levels: -4..3, the 4 already taken off.
struct [[gnu::packed]] BlockQ3_K {
  uint8_t hmask[32];   // level 32p + i (i < 32): its third bit is bit p of byte i
  uint8_t qs[64];      // level 128h + 32p + i (i < 32): its low bits are bits 2p, 2p + 1 of byte 32h + i
  uint8_t scales[12];  // scale j: low 4 bits in half j / 8 of byte j % 8, high 2 in bits 2(j / 4).. of byte 8 + j % 4
  f16 d;
};
// scales[16]: -32..31, the 32 already taken off
void unpack_scales(const BlockQ3_K& block, int8_t* scales) noexcept;

// Q4_K: 256 levels of 4 bits in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum.
// value = d * scale * level - dmin * minimum.
// Levels: 0..15.
struct [[gnu::packed]] BlockQ4_K {
  f16 d;
  f16 dmin;
  uint8_t scales[12];  // see k_scales.h
  uint8_t qs[128];     // byte 32p + i (i < 32): level 64p + i in the low half, level 64p + 32 + i in the high half
};
// scales[8], minimums[8]: 0..63
void unpack_scales(const BlockQ4_K& block, uint8_t* scales, uint8_t* minimums) noexcept;

// Q5_K: 256 levels of 5 bits in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum.
// value = d * scale * level - dmin * minimum.
// Levels: 0..31.
struct [[gnu::packed]] BlockQ5_K {
  f16 d;
  f16 dmin;
  uint8_t scales[12];  // see k_scales.h
  uint8_t qh[32];      // level 32p + i (i < 32): its fifth bit is bit p of byte i
  uint8_t qs[128];     // byte 32p + i (i < 32): level 64p + i in the low half, level 64p + 32 + i in the high half
};
// scales[8], minimums[8]: 0..63
void unpack_scales(const BlockQ5_K& block, uint8_t* scales, uint8_t* minimums) noexcept;

// Q6_K: 256 levels of 6 bits around 32 in 16 sub-blocks of 16, each with an 8-bit signed scale.
// value = d * scale * (level - 32).
// Levels: -32..31, the 32 already taken off.
struct [[gnu::packed]] BlockQ6_K {
  uint8_t ql[128];  // byte 64h + 32p + i (i < 32): low 4 bits of level 128h + 32p + i in the low half, of that + 64 in
                    // the high half
  uint8_t qh[64];   // level 128h + 32p + i (i < 32): its high 2 bits are bits 2p, 2p + 1 of byte 32h + i
  int8_t scales[16];  // one per sub-block
  f16 d;
};

// IQ4_NL: 32 codes of 4 bits and one scale. value = d * codebook[code].
struct [[gnu::packed]] BlockIQ4_NL {
  f16 d;
  uint8_t qs[16];  // byte i: code i in the low half, code i + 16 in the high half
};

// MXFP4: 32 codes of 4 bits and a power of two. value = 2^(e - 128) * codebook[code], whose integers are doubled.
struct [[gnu::packed]] BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];  // byte i: code i in the low half, code i + 16 in the high half
};
// 2^(e - 128): bf16 holds all of them exactly.
[[nodiscard]] inline bf16 e8m0_scale(uint8_t e) noexcept {
  return static_cast<bf16>(e < 2 ? 0x20 << e : (e - 1) << 7);
}

// IQ4_XS: 256 codes of 4 bits in 8 sub-blocks of 32, each with a 6-bit scale around 32.
// value = d * (scale - 32) * codebook[code].
struct [[gnu::packed]] BlockIQ4_XS {
  f16 d;
  uint16_t scales_h;    // scale j: its high 2 bits are bits 2j, 2j + 1
  uint8_t scales_l[4];  // and its low 4 bits half j % 2 of byte j / 2
  uint8_t qs[128];      // byte 16j + i: code 32j + i in the low half, code 32j + 16 + i in the high half
};
// scales[8]: -32..31, the 32 already taken off
void unpack_scales(const BlockIQ4_XS& block, int8_t* scales) noexcept;

// Of every format:
//   unpack_levels  levels[block]: what value = d * level... of weight_format.h calls level, those of a codebook looked
//                  up
//   dequantize     src[n] and dst[n]; n a multiple of the block
//   quantize       the same; importance[n], or null: how much errors in each column matter (quant.h)
//   dot            one weight row times one activation row of the same block, as numerics.h states
#define QUANTIZED(name, Name, ...)                                                                \
  static_assert(sizeof(Block##Name) == WeightFormat{__VA_ARGS__}.bytes);                          \
  void unpack_levels(const Block##Name& block, int8_t* levels) noexcept;                          \
  void dequantize(const Block##Name* src, float* dst, int64_t n) noexcept;                        \
  void quantize(const float* src, const float* importance, Block##Name* dst, int64_t n) noexcept; \
  [[nodiscard]] float dot(const Block##Name* row, const ActivationView& x, int64_t k) noexcept;
#include "tensor/weight_formats.inc"

}  // namespace inferno
