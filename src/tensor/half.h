// Conversions between float and the two 16-bit types, exact and round-to-nearest-even, in plain integer arithmetic.
// They are the reference; kernels use the CPU's own instructions, which round the same way.
#pragma once

#include <bit>
#include <cstdint>

namespace inferno {

// Storage types: distinct from uint16_t so that a half is never mistaken for an integer.
enum class f16 : uint16_t {};
enum class bf16 : uint16_t {};

[[nodiscard]] inline float to_float(bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

[[nodiscard]] inline bf16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<bf16>((bits >> 16) | 0x40U);  // NaN stays NaN, quiet
  return static_cast<bf16>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

[[nodiscard]] inline float to_float(f16 value) {
  const uint32_t bits = static_cast<uint32_t>(value);
  const uint32_t sign = (bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

[[nodiscard]] inline f16 to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<f16>(sign | 0x7e00U);   // NaN
  if (magnitude >= 0x477ff000U) return static_cast<f16>(sign | 0x7c00U);  // rounds to infinity (>= 65520)
  if (magnitude < 0x38800000U) {
    // Subnormal half: adding 0.5 puts the unit in the last place of the float at 2^-24, so the addition rounds for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<f16>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<f16>(sign | ((rounded - 0x38000000U) >> 13));
}

}  // namespace inferno
