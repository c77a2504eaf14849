// The searches that blocks of 32 and super-blocks share: levels for a scale, least squares for levels. Internal to
// level_fit.cpp and super_block_fit.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "quant/block_math.h"
#include "quant/level_fit.h"

namespace inferno {

// Candidates are tried side by side, one per lane: the loops over lanes have no dependence between iterations, so the
// compiler makes vectors of them without having to reorder a floating-point sum.
inline constexpr int kLanes = 16;
using Lanes = std::array<float, kLanes>;

// Candidates cover the range with this many more levels than there are: below 0 the ends of the range stay unused,
// above 0 the largest values are cut. The plain choice comes first, so that it wins ties.
inline constexpr Lanes kStretch = {0.0F, -0.9F, -0.75F, -0.6F, -0.45F, -0.3F, -0.2F, -0.1F,
                                   0.1F, 0.2F,  0.3F,   0.4F,  0.5F,   0.6F,  0.75F, 0.9F};

// round_half_even(value) cut to [lowest, highest]
inline float nearest_level(float value, float lowest, float highest) noexcept {
  return round_half_even(std::min(std::max(value, lowest), highest));
}

inline float inverse_or_zero(float value) noexcept {
  const float inverse = 1.0F / value;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

// Weighted sums over one sub-block from which least squares follows.
struct Moments {
  float one = 0.0F;  // sum w
  float x = 0.0F;    // sum w * x
  float q = 0.0F;    // sum w * level
  float qq = 0.0F;   // sum w * level^2
  float xq = 0.0F;   // sum w * x * level
};

template <int kCount>
Moments moments_of(const float* x, const float* w, const int8_t* levels) noexcept {
  std::array<Moments, 4> parts = {};
  for (int i = 0; i < kCount; ++i) {
    Moments& part = parts[static_cast<size_t>(i % 4)];
    const auto level = static_cast<float>(levels[i]);
    part.one += w[i];
    part.x += w[i] * x[i];
    part.q += w[i] * level;
    part.qq += w[i] * (level * level);
    part.xq += w[i] * (x[i] * level);
  }
  const auto sum = [&](float Moments::* of) { return (parts[0].*of + parts[1].*of) + (parts[2].*of + parts[3].*of); };
  return {sum(&Moments::one), sum(&Moments::x), sum(&Moments::q), sum(&Moments::qq), sum(&Moments::xq)};
}

// The value of largest magnitude, by way of both ends: clang 19 miscompiles an unrolled `if (|x| > |peak|) peak = x`.
template <int kCount>
float peak_of(const float* x) noexcept {
  float low = 0.0F;
  float high = 0.0F;
  for (int i = 0; i < kCount; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  return -low > high ? low : high;
}

// Least squares for x = scale * level.
template <int kCount>
float fit_scale(const float* x, const float* w, float lowest, float highest) noexcept {
  const float peak = peak_of<kCount>(x);
  const float inverse_peak = inverse_or_zero(peak);
  if (inverse_peak == 0.0F) return 0.0F;

  Lanes inverse;
  for (size_t t = 0; t < kLanes; ++t) inverse[t] = (lowest - kStretch[t]) * inverse_peak;
  Lanes qq = {};
  Lanes xq = {};
  for (int i = 0; i < kCount; ++i) {
    for (size_t t = 0; t < kLanes; ++t) {
      const float level = nearest_level(x[i] * inverse[t], lowest, highest);
      qq[t] += w[i] * (level * level);
      xq[t] += w[i] * (x[i] * level);
    }
  }
  // The residue is sum x^2 - xq^2 / qq.
  size_t best = 0;
  for (size_t t = 1; t < kLanes; ++t) {
    if (xq[t] * xq[t] * qq[best] > xq[best] * xq[best] * qq[t]) best = t;
  }
  if (qq[best] == 0.0F) return 0.0F;  // weights that underflow
  float scale = xq[best] / qq[best];

  std::array<int8_t, kCount> levels;
  for (int round = 0; round < 2; ++round) {
    assign_levels(x, kCount, scale, 0.0F, static_cast<int>(lowest), static_cast<int>(highest), levels.data());
    const Moments sums = moments_of<kCount>(x, w, levels.data());
    if (sums.qq == 0.0F) break;
    scale = sums.xq / sums.qq;
  }
  return scale;
}

// Least squares for x = scale * level + offset from the moments, offset at most highest_offset.
inline AffineFit solve_affine(const Moments& sums, float highest_offset, const AffineFit& otherwise) noexcept {
  const float determinant = sums.one * sums.qq - sums.q * sums.q;
  if (determinant <= 0.0F) return otherwise;
  AffineFit fit;
  fit.scale = (sums.one * sums.xq - sums.x * sums.q) / determinant;
  fit.offset = (sums.x - fit.scale * sums.q) / sums.one;
  if (fit.offset > highest_offset) {
    fit.offset = highest_offset;
    fit.scale = (sums.xq - fit.offset * sums.q) / sums.qq;
  }
  return fit.scale > 0.0F ? fit : otherwise;
}

// Reduction of the residue of `fit` against predicting 0: 2 <x, y> - <y, y> for y = scale * level + offset.
inline float gain_of(const Moments& sums, const AffineFit& fit) noexcept {
  const float xy = fit.scale * sums.xq + fit.offset * sums.x;
  const float yy =
      fit.scale * fit.scale * sums.qq + 2.0F * fit.scale * fit.offset * sums.q + sums.one * fit.offset * fit.offset;
  return 2.0F * xy - yy;
}

template <int kCount>
AffineFit fit_affine(const float* x, const float* w, float highest, float highest_offset) noexcept {
  float low = x[0];
  float high = x[0];
  for (int i = 1; i < kCount; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  low = std::min(low, highest_offset);
  const float inverse_range = inverse_or_zero(high - low);
  if (inverse_range == 0.0F) return {0.0F, low};

  Lanes inverse;
  for (size_t t = 0; t < kLanes; ++t) inverse[t] = (highest + kStretch[t]) * inverse_range;
  Lanes q = {};
  Lanes qq = {};
  Lanes xq = {};
  float sum_w = 0.0F;
  float sum_x = 0.0F;
  for (int i = 0; i < kCount; ++i) {
    sum_w += w[i];
    sum_x += w[i] * x[i];
    for (size_t t = 0; t < kLanes; ++t) {
      const float level = nearest_level((x[i] - low) * inverse[t], 0.0F, highest);
      q[t] += w[i] * level;
      qq[t] += w[i] * (level * level);
      xq[t] += w[i] * (x[i] * level);
    }
  }
  AffineFit best = {(high - low) / highest, low};
  float best_gain = gain_of({sum_w, sum_x, q[0], qq[0], xq[0]}, best);
  for (size_t t = 0; t < kLanes; ++t) {
    const Moments sums = {sum_w, sum_x, q[t], qq[t], xq[t]};
    const AffineFit fit = solve_affine(sums, highest_offset, best);
    const float gain = gain_of(sums, fit);
    if (gain > best_gain) {
      best_gain = gain;
      best = fit;
    }
  }
  std::array<int8_t, kCount> levels;
  for (int round = 0; round < 2; ++round) {
    assign_levels(x, kCount, best.scale, best.offset, 0, static_cast<int>(highest), levels.data());
    best = solve_affine(moments_of<kCount>(x, w, levels.data()), highest_offset, best);
  }
  return best;
}

}  // namespace inferno
