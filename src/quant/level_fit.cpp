#include "quant/level_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "quant/block_math.h"

namespace inferno {

namespace {

// Candidates are tried side by side, one per lane: the loops over lanes have no dependence between iterations, so the
// compiler makes vectors of them without having to reorder a floating-point sum.
constexpr int kLanes = 16;
using Lanes = std::array<float, kLanes>;

// Candidates cover the range with this many more levels than there are: below 0 the ends of the range stay unused,
// above 0 the largest values are cut. The plain choice comes first, so that it wins ties.
constexpr Lanes kStretch = {0.0F, -0.9F, -0.75F, -0.6F, -0.45F, -0.3F, -0.2F, -0.1F,
                            0.1F, 0.2F,  0.3F,   0.4F,  0.5F,   0.6F,  0.75F, 0.9F};

// round_half_even(value) cut to [lowest, highest]
inline float nearest_level(float value, float lowest, float highest) noexcept {
  return round_half_even(std::min(std::max(value, lowest), highest));
}

inline float inverse_or_zero(float value) noexcept {
  const float inverse = 1.0F / value;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

// Sums over one sub-block from which least squares follows.
struct Moments {
  float x = 0.0F;   // sum x
  float q = 0.0F;   // sum level
  float qq = 0.0F;  // sum level^2
  float xq = 0.0F;  // sum x * level
};

template <int kCount>
Moments moments_of(const float* x, const int8_t* levels) noexcept {
  int q = 0;
  int qq = 0;
  std::array<float, 4> sum_x = {};
  std::array<float, 4> sum_xq = {};
  for (int i = 0; i < kCount; ++i) {
    q += levels[i];
    qq += levels[i] * levels[i];
    sum_x[static_cast<size_t>(i % 4)] += x[i];
    sum_xq[static_cast<size_t>(i % 4)] += x[i] * static_cast<float>(levels[i]);
  }
  return {(sum_x[0] + sum_x[1]) + (sum_x[2] + sum_x[3]), static_cast<float>(q), static_cast<float>(qq),
          (sum_xq[0] + sum_xq[1]) + (sum_xq[2] + sum_xq[3])};
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
float fit_scale(const float* x, float lowest, float highest) noexcept {
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
      qq[t] += level * level;
      xq[t] += x[i] * level;
    }
  }
  // The residue is sum x^2 - xq^2 / qq. No candidate has qq = 0: the peak's own level is never 0.
  size_t best = 0;
  for (size_t t = 1; t < kLanes; ++t) {
    if (xq[t] * xq[t] * qq[best] > xq[best] * xq[best] * qq[t]) best = t;
  }
  float scale = xq[best] / qq[best];

  std::array<int8_t, kCount> levels;
  for (int round = 0; round < 2; ++round) {
    assign_levels(x, kCount, scale, 0.0F, static_cast<int>(lowest), static_cast<int>(highest), levels.data());
    const Moments sums = moments_of<kCount>(x, levels.data());
    if (sums.qq == 0.0F) break;
    scale = sums.xq / sums.qq;
  }
  return scale;
}

// Least squares for x = scale * level + offset from the moments of kCount values, offset at most highest_offset.
template <int kCount>
AffineFit solve_affine(const Moments& sums, float highest_offset, const AffineFit& otherwise) noexcept {
  const float determinant = static_cast<float>(kCount) * sums.qq - sums.q * sums.q;
  if (determinant <= 0.0F) return otherwise;
  AffineFit fit;
  fit.scale = (static_cast<float>(kCount) * sums.xq - sums.x * sums.q) / determinant;
  fit.offset = (sums.x - fit.scale * sums.q) / static_cast<float>(kCount);
  if (fit.offset > highest_offset) {
    fit.offset = highest_offset;
    fit.scale = (sums.xq - fit.offset * sums.q) / sums.qq;
  }
  return fit.scale > 0.0F ? fit : otherwise;
}

// Reduction of the residue of `fit` against predicting 0: 2 <x, y> - <y, y> for y = scale * level + offset.
template <int kCount>
float gain_of(const Moments& sums, const AffineFit& fit) noexcept {
  const float xy = fit.scale * sums.xq + fit.offset * sums.x;
  const float yy = fit.scale * fit.scale * sums.qq + 2.0F * fit.scale * fit.offset * sums.q +
                   static_cast<float>(kCount) * fit.offset * fit.offset;
  return 2.0F * xy - yy;
}

template <int kCount>
AffineFit fit_affine(const float* x, float highest, float highest_offset) noexcept {
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
  float sum_x = 0.0F;
  for (int i = 0; i < kCount; ++i) {
    sum_x += x[i];
    for (size_t t = 0; t < kLanes; ++t) {
      const float level = nearest_level((x[i] - low) * inverse[t], 0.0F, highest);
      q[t] += level;
      qq[t] += level * level;
      xq[t] += x[i] * level;
    }
  }
  AffineFit best = {(high - low) / highest, low};
  float best_gain = gain_of<kCount>({sum_x, q[0], qq[0], xq[0]}, best);
  for (size_t t = 0; t < kLanes; ++t) {
    const Moments sums = {sum_x, q[t], qq[t], xq[t]};
    const AffineFit fit = solve_affine<kCount>(sums, highest_offset, best);
    const float gain = gain_of<kCount>(sums, fit);
    if (gain > best_gain) {
      best_gain = gain;
      best = fit;
    }
  }
  std::array<int8_t, kCount> levels;
  for (int round = 0; round < 2; ++round) {
    assign_levels(x, kCount, best.scale, best.offset, 0, static_cast<int>(highest), levels.data());
    best = solve_affine<kCount>(moments_of<kCount>(x, levels.data()), highest_offset, best);
  }
  return best;
}

int nearest_int(float value, int lowest, int highest) noexcept {
  return static_cast<int>(nearest_level(value, static_cast<float>(lowest), static_cast<float>(highest)));
}

// The squared errors of kLanes candidates (scale, offset) for one sub-block.
template <int kCount>
Lanes squared_errors(const float* x, const Lanes& scale, const Lanes& offset, float lowest, float highest) noexcept {
  Lanes inverse;
  for (size_t t = 0; t < kLanes; ++t) inverse[t] = inverse_or_zero(scale[t]);
  Lanes error = {};
  for (int i = 0; i < kCount; ++i) {
    for (size_t t = 0; t < kLanes; ++t) {
      const float level = nearest_level((x[i] - offset[t]) * inverse[t], lowest, highest);
      const float residue = x[i] - (scale[t] * level + offset[t]);
      error[t] += residue * residue;
    }
  }
  return error;
}

// The second refit gains a tenth of the first and costs as much.
constexpr int kRefits = 1;

}  // namespace

void load_finite(const float* src, int n, float* dst) noexcept {
  for (int i = 0; i < n; ++i) {
    const float value = std::fabs(src[i]) >= kInputFloor ? src[i] : 0.0F;  // false for NaN, too
    dst[i] = std::min(std::max(value, -kInputLimit), kInputLimit);
  }
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

float fit_scale_32(const float* x, int lowest, int highest) noexcept {
  return fit_scale<32>(x, static_cast<float>(lowest), static_cast<float>(highest));
}

AffineFit fit_affine_32(const float* x, int highest) noexcept {
  return fit_affine<32>(x, static_cast<float>(highest), kInputLimit);
}

void fit_super_block(const float* x, const ScaledLimits& limits, ScaledSuperBlock* out) noexcept {
  constexpr int kSub = 16;
  constexpr int kSubs = 256 / kSub;
  const auto lowest = static_cast<float>(limits.lowest_level);
  const auto highest = static_cast<float>(limits.highest_level);
  float ideal[kSubs];
  for (int j = 0; j < kSubs; ++j) ideal[j] = fit_scale<kSub>(x + j * kSub, lowest, highest);

  float best_error = INFINITY;
  float d = to_float(to_f16_scale(peak_of<kSubs>(ideal) / static_cast<float>(limits.lowest_scale)));
  const float first_inverse = inverse_or_zero(d);
  int scales[kSubs];
  for (int j = 0; j < kSubs; ++j) {
    scales[j] = nearest_int(ideal[j] * first_inverse, limits.lowest_scale, limits.highest_scale);
  }
  for (int refit = 0; refit <= kRefits; ++refit) {
    ScaledSuperBlock trial;
    trial.d = to_f16(d);
    float error = 0.0F;
    float xy = 0.0F;
    float yy = 0.0F;
    for (int j = 0; j < kSubs; ++j) {
      const float* part = x + j * kSub;
      int candidates[kLanes];
      Lanes scale;
      for (int t = 0; t < kLanes; ++t) {
        // The present scale, then its neighbours: +1, -1, +2, -2, ...
        const int step = t % 2 == 1 ? (t + 1) / 2 : -t / 2;
        candidates[t] = std::clamp(scales[j] + step, limits.lowest_scale, limits.highest_scale);
        scale[static_cast<size_t>(t)] = d * static_cast<float>(candidates[t]);
      }
      const Lanes errors = squared_errors<kSub>(part, scale, Lanes{}, lowest, highest);
      const auto best = static_cast<size_t>(std::min_element(errors.begin(), errors.end()) - errors.begin());
      scales[j] = candidates[best];
      trial.scales[j] = static_cast<int8_t>(scales[j]);
      error += errors[best];
      assign_levels(part, kSub, scale[best], 0.0F, limits.lowest_level, limits.highest_level, trial.levels + j * kSub);
      const Moments sums = moments_of<kSub>(part, trial.levels + j * kSub);
      const auto s = static_cast<float>(scales[j]);
      xy += s * sums.xq;
      yy += s * s * sums.qq;
    }
    if (!(error < best_error)) break;
    best_error = error;
    *out = trial;
    if (yy == 0.0F) break;
    d = to_float(to_f16_scale(xy / yy));
  }
}

namespace {

template <int kSub>
void fit_affine_super_block(const float* x, const AffineLimits& limits, AffineSuperBlock* out) noexcept {
  constexpr int kSubs = 256 / kSub;
  const auto highest = static_cast<float>(limits.highest_level);
  AffineFit ideal[kSubs];
  AffineFit peak = {0.0F, 0.0F};
  for (int j = 0; j < kSubs; ++j) {
    ideal[j] = fit_affine<kSub>(x + j * kSub, highest, 0.0F);
    peak.scale = std::max(peak.scale, ideal[j].scale);
    peak.offset = std::min(peak.offset, ideal[j].offset);
  }

  float best_error = INFINITY;
  float d = to_float(to_f16_scale(peak.scale / static_cast<float>(limits.highest_scale)));
  float dmin = to_float(to_f16_scale(-peak.offset / static_cast<float>(limits.highest_scale)));
  int scales[kSubs];
  int minimums[kSubs];
  const float first_inverse = inverse_or_zero(d);
  const float first_inverse_min = inverse_or_zero(dmin);
  for (int j = 0; j < kSubs; ++j) {
    scales[j] = nearest_int(ideal[j].scale * first_inverse, 0, limits.highest_scale);
    minimums[j] = nearest_int(-ideal[j].offset * first_inverse_min, 0, limits.highest_scale);
  }
  for (int refit = 0; refit <= kRefits; ++refit) {
    AffineSuperBlock trial = {};
    trial.d = to_f16(d);
    trial.dmin = to_f16(dmin);
    float error = 0.0F;
    // Normal equations of x = d * (scale * level) - dmin * minimum over the whole super-block.
    float aa = 0.0F;
    float ab = 0.0F;
    float bb = 0.0F;
    float xa = 0.0F;
    float xb = 0.0F;
    for (int j = 0; j < kSubs; ++j) {
      const float* part = x + j * kSub;
      int candidate_scales[kLanes];
      int candidate_minimums[kLanes];
      Lanes scale;
      Lanes offset;
      for (int t = 0; t < kLanes; ++t) {
        constexpr int kScaleStep[kLanes] = {0, 1, -1, 0, 0, 1, 1, -1, -1, 2, -2, 0, 0, 2, -2, 3};
        constexpr int kMinimumStep[kLanes] = {0, 0, 0, 1, -1, 1, -1, 1, -1, 0, 0, 2, -2, 1, -1, 0};
        candidate_scales[t] = std::clamp(scales[j] + kScaleStep[t], 0, limits.highest_scale);
        candidate_minimums[t] = std::clamp(minimums[j] + kMinimumStep[t], 0, limits.highest_scale);
        scale[static_cast<size_t>(t)] = d * static_cast<float>(candidate_scales[t]);
        offset[static_cast<size_t>(t)] = -dmin * static_cast<float>(candidate_minimums[t]);
      }
      const Lanes errors = squared_errors<kSub>(part, scale, offset, 0.0F, highest);
      const auto best = static_cast<size_t>(std::min_element(errors.begin(), errors.end()) - errors.begin());
      scales[j] = candidate_scales[best];
      minimums[j] = candidate_minimums[best];
      trial.scales[j] = static_cast<uint8_t>(scales[j]);
      trial.minimums[j] = static_cast<uint8_t>(minimums[j]);
      error += errors[best];
      assign_levels(part, kSub, scale[best], offset[best], 0, limits.highest_level, trial.levels + j * kSub);
      const Moments sums = moments_of<kSub>(part, trial.levels + j * kSub);
      const auto s = static_cast<float>(scales[j]);
      const auto m = static_cast<float>(minimums[j]);
      aa += s * s * sums.qq;
      ab += s * m * sums.q;
      bb += m * m * static_cast<float>(kSub);
      xa += s * sums.xq;
      xb += m * sums.x;
    }
    if (!(error < best_error)) break;
    best_error = error;
    *out = trial;
    const float determinant = aa * bb - ab * ab;
    if (determinant > 0.0F) {
      d = to_float(to_f16_scale(std::max((xa * bb - xb * ab) / determinant, 0.0F)));
      dmin = to_float(to_f16_scale(std::max((xa * ab - xb * aa) / determinant, 0.0F)));
    } else if (aa > 0.0F) {
      d = to_float(to_f16_scale(std::max((xa + dmin * ab) / aa, 0.0F)));
    } else {
      break;
    }
  }
}

}  // namespace

void fit_super_block(const float* x, const AffineLimits& limits, AffineSuperBlock* out) noexcept {
  if (limits.sub == 16) {
    fit_affine_super_block<16>(x, limits, out);
  } else {
    fit_affine_super_block<32>(x, limits, out);
  }
}

}  // namespace inferno
