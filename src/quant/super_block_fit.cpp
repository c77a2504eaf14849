#include <algorithm>
#include <cmath>

#include "quant/level_fit.h"
#include "quant/level_search.h"

namespace inferno {
namespace {
int nearest_int(float value, int lowest, int highest) noexcept {
  return static_cast<int>(nearest_level(value, static_cast<float>(lowest), static_cast<float>(highest)));
}

// The squared errors of kLanes candidates (scale, offset) for one sub-block.
template <int kCount>
Lanes squared_errors(const float* x, const float* w, const Lanes& scale, const Lanes& offset, float lowest,
                     float highest) noexcept {
  Lanes inverse;
  for (size_t t = 0; t < kLanes; ++t) inverse[t] = inverse_or_zero(scale[t]);
  Lanes error = {};
  for (int i = 0; i < kCount; ++i) {
    for (size_t t = 0; t < kLanes; ++t) {
      const float level = nearest_level((x[i] - offset[t]) * inverse[t], lowest, highest);
      const float residue = x[i] - (scale[t] * level + offset[t]);
      error[t] += w[i] * (residue * residue);
    }
  }
  return error;
}

// The second refit gains a tenth of the first and costs as much.
constexpr int kRefits = 1;

}  // namespace

void fit_super_block(const float* x, const float* w, const ScaledLimits& limits, ScaledSuperBlock* out) noexcept {
  constexpr int kSub = 16;
  constexpr int kSubs = 256 / kSub;
  const auto lowest = static_cast<float>(limits.lowest_level);
  const auto highest = static_cast<float>(limits.highest_level);
  float ideal[kSubs];
  for (int j = 0; j < kSubs; ++j) ideal[j] = fit_scale<kSub>(x + j * kSub, w + j * kSub, lowest, highest);

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
      const float* weights = w + j * kSub;
      int candidates[kLanes];
      Lanes scale;
      for (int t = 0; t < kLanes; ++t) {
        // The present scale, then its neighbours: +1, -1, +2, -2, ...
        const int step = t % 2 == 1 ? (t + 1) / 2 : -t / 2;
        candidates[t] = std::clamp(scales[j] + step, limits.lowest_scale, limits.highest_scale);
        scale[static_cast<size_t>(t)] = d * static_cast<float>(candidates[t]);
      }
      const Lanes errors = squared_errors<kSub>(part, weights, scale, Lanes{}, lowest, highest);
      const auto best = static_cast<size_t>(std::min_element(errors.begin(), errors.end()) - errors.begin());
      scales[j] = candidates[best];
      trial.scales[j] = static_cast<int8_t>(scales[j]);
      error += errors[best];
      assign_levels(part, kSub, scale[best], 0.0F, limits.lowest_level, limits.highest_level, trial.levels + j * kSub);
      const Moments sums = moments_of<kSub>(part, weights, trial.levels + j * kSub);
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
void fit_affine_super_block(const float* x, const float* w, const AffineLimits& limits,
                            AffineSuperBlock* out) noexcept {
  constexpr int kSubs = 256 / kSub;
  const auto highest = static_cast<float>(limits.highest_level);
  AffineFit ideal[kSubs];
  AffineFit peak = {0.0F, 0.0F};
  for (int j = 0; j < kSubs; ++j) {
    ideal[j] = fit_affine<kSub>(x + j * kSub, w + j * kSub, highest, 0.0F);
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
      const float* weights = w + j * kSub;
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
      const Lanes errors = squared_errors<kSub>(part, weights, scale, offset, 0.0F, highest);
      const auto best = static_cast<size_t>(std::min_element(errors.begin(), errors.end()) - errors.begin());
      scales[j] = candidate_scales[best];
      minimums[j] = candidate_minimums[best];
      trial.scales[j] = static_cast<uint8_t>(scales[j]);
      trial.minimums[j] = static_cast<uint8_t>(minimums[j]);
      error += errors[best];
      assign_levels(part, kSub, scale[best], offset[best], 0, limits.highest_level, trial.levels + j * kSub);
      const Moments sums = moments_of<kSub>(part, weights, trial.levels + j * kSub);
      const auto s = static_cast<float>(scales[j]);
      const auto m = static_cast<float>(minimums[j]);
      aa += s * s * sums.qq;
      ab += s * m * sums.q;
      bb += m * m * sums.one;
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

void fit_super_block(const float* x, const float* w, const AffineLimits& limits, AffineSuperBlock* out) noexcept {
  if (limits.sub == 16) {
    fit_affine_super_block<16>(x, w, limits, out);
  } else {
    fit_affine_super_block<32>(x, w, limits, out);
  }
}

}  // namespace inferno
