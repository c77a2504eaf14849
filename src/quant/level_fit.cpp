#include "quant/level_fit.h"

#include <algorithm>
#include <cmath>

#include "quant/level_search.h"

namespace inferno {

void load_finite(const float* src, int n, float* dst) noexcept {
  for (int i = 0; i < n; ++i) {
    const float value = std::fabs(src[i]) >= kInputFloor ? src[i] : 0.0F;  // false for NaN, too
    dst[i] = std::min(std::max(value, -kInputLimit), kInputLimit);
  }
}

namespace {

// The largest becomes 1, none less than kLeastWeight.
void normalize(int n, float* w) noexcept {
  const float scale = inverse_or_zero(*std::max_element(w, w + n));
  for (int i = 0; i < n; ++i) w[i] = scale == 0.0F ? 1.0F : std::max(w[i] * scale, kLeastWeight);
}

}  // namespace

void load_weights(const float* importance, int n, float* w) noexcept {
  std::fill_n(w, n, 1.0F);
  if (importance == nullptr) return;
  std::copy_n(importance, n, w);
  normalize(n, w);
}

void load_weights_by_size(const float* importance, const float* x, int n, float* w) noexcept {
  float squares = 0.0F;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  const float mean = squares / static_cast<float>(n);
  for (int i = 0; i < n; ++i) w[i] = std::sqrt(mean + x[i] * x[i]) * (importance == nullptr ? 1.0F : importance[i]);
  normalize(n, w);
}

f16 to_finite_f16(float value) noexcept {
  return to_f16(std::min(std::max(value, -65504.0F), 65504.0F));
}

f16 to_f16_scale(float value) noexcept {
  constexpr float kSmallest = 0x1p-24F;
  if (value == 0.0F || std::fabs(value) >= kSmallest) return to_finite_f16(value);
  return to_f16(std::copysign(kSmallest, value));
}

void assign_levels(const float* x, int n, float scale, float offset, int lowest, int highest, int8_t* levels) noexcept {
  const float inverse = inverse_or_zero(scale);
  for (int i = 0; i < n; ++i) {
    levels[i] = static_cast<int8_t>(
        nearest_level((x[i] - offset) * inverse, static_cast<float>(lowest), static_cast<float>(highest)));
  }
}

float fit_scale_32(const float* x, const float* w, int lowest, int highest) noexcept {
  return fit_scale<32>(x, w, static_cast<float>(lowest), static_cast<float>(highest));
}

AffineFit fit_affine_32(const float* x, const float* w, int highest) noexcept {
  return fit_affine<32>(x, w, static_cast<float>(highest), kInputLimit);
}

}  // namespace inferno
