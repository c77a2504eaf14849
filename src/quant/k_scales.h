// The 12 bytes in which Q4_K and Q5_K keep eight 6-bit scales and eight 6-bit minimums.
//
//   bytes 0..3    scale j in bits 0..5;        bits 6, 7 are the high bits of scale j + 4       (j = 0..3)
//   bytes 4..7    minimum j in bits 0..5;      bits 6, 7 are the high bits of minimum j + 4
//   bytes 8..11   low 4 bits of scale j + 4 in the low half, of minimum j + 4 in the high half
#pragma once

#include <cstdint>

namespace inferno {

// packed[12], scales[8], minimums[8]: 0..63
void unpack_k_scales(const uint8_t* packed, uint8_t* scales, uint8_t* minimums) noexcept;
void pack_k_scales(const uint8_t* scales, const uint8_t* minimums, uint8_t* packed) noexcept;

}  // namespace inferno
