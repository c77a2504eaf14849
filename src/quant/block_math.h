// Loops that the reference code of several formats shares. Internal to src/quant.
#pragma once

#include <cstdint>

namespace inferno {

// |value| < 2^22. Adding the bias pushes the fraction out of the mantissa, which rounds it; the compiler makes vectors
// of this on every CPU.
[[nodiscard]] inline float round_half_even(float value) noexcept {
  constexpr float kBias = 0x1.8p23F;
  return (value + kBias) - kBias;
}

// sum_i a[i] * b[i], exact
template <int kCount>
[[nodiscard]] int32_t dot_levels(const int8_t* a, const int8_t* b) noexcept {
  int32_t sum = 0;
  for (int i = 0; i < kCount; ++i) sum += int32_t{a[i]} * b[i];
  return sum;
}

// sum_j scales[j] * sum_i levels[j][i] * q[j][i], exact: 256 levels in sub-blocks of kSub
template <int kSub, typename Scale>
[[nodiscard]] int32_t dot_scaled_levels(const Scale* scales, const int8_t* levels, const int8_t* q) noexcept {
  int32_t sum = 0;
  for (int j = 0; j < 256 / kSub; ++j) sum += scales[j] * dot_levels<kSub>(levels + j * kSub, q + j * kSub);
  return sum;
}

// sum_j minimums[j] * sum_i q[j][i] from the activation's sums over 16, exact
template <int kSub>
[[nodiscard]] int32_t dot_minimums(const uint8_t* minimums, const int16_t* sums) noexcept {
  int32_t sum = 0;
  for (int s = 0; s < 16; ++s) sum += int32_t{minimums[s / (kSub / 16)]} * sums[s];
  return sum;
}

// dst[256]: d * scale * level in sub-blocks of kSub
template <int kSub, typename Scale>
void scale_levels(float d, const Scale* scales, const int8_t* levels, float* dst) noexcept {
  for (int i = 0; i < 256; ++i) {
    const int j = i / kSub;
    dst[i] = d * static_cast<float>(scales[j]) * static_cast<float>(levels[i]);
  }
}

// dst[256]: d * scale * level - dmin * minimum in sub-blocks of kSub
template <int kSub>
void scale_levels(float d, float dmin, const uint8_t* scales, const uint8_t* minimums, const int8_t* levels,
                  float* dst) noexcept {
  for (int i = 0; i < 256; ++i) {
    const int j = i / kSub;
    dst[i] = d * static_cast<float>(scales[j]) * static_cast<float>(levels[i]) - dmin * static_cast<float>(minimums[j]);
  }
}

}  // namespace inferno
