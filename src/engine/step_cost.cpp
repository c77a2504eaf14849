#include "engine/step_cost.h"

#include <algorithm>
#include <cmath>

namespace inferno {
namespace {

using Terms = StepCost::Terms;

// A usual step in each feature, so that the four are of one size.
constexpr Terms kScale = {1, 4, 64, 16384};
// How far a start value may be off, as a factor of itself; and how much a coefficient may drift per step.
constexpr double kStartSpread = 3;
constexpr double kDrift = 0.02;
// A measured time is off by about this share of itself. A step that takes longer than expected by more than kOutlier
// standard deviations was disturbed and counts as if its noise had been that large; nothing makes a step faster by
// accident.
constexpr double kNoise = 0.05;
constexpr double kOutlier = 3;
constexpr double kErrorWeight = 0.05;

Terms features(const StepShape& step) {
  return {1, step.rows / kScale[1], step.tokens / kScale[2], static_cast<double>(step.context) / kScale[3]};
}

double dot(const Terms& a, const Terms& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

StepCost::StepCost(const Terms& start) {
  for (size_t i = 0; i < kTerms; ++i) {
    start_[i] = terms_[i] = start[i] * kScale[i];
    covariance_[i][i] = kStartSpread * start_[i] * kStartSpread * start_[i];
  }
}

Terms StepCost::terms() const {
  Terms result;
  for (size_t i = 0; i < kTerms; ++i) result[i] = terms_[i] / kScale[i];
  return result;
}

double StepCost::seconds(const StepShape& step) const {
  return dot(terms_, features(step));
}

void StepCost::observe(const StepShape& step, double seconds) {
  if (!(seconds > 0)) return;
  for (size_t i = 0; i < kTerms; ++i) {
    const double scale = std::max(terms_[i], start_[i]);
    const double most = kStartSpread * scale * kStartSpread * scale;
    covariance_[i][i] = std::min(covariance_[i][i] + kDrift * scale * kDrift * scale, most);
  }
  const Terms f = features(step);
  Terms pf{};  // covariance * f
  for (size_t i = 0; i < kTerms; ++i) pf[i] = dot(covariance_[i], f);
  const double innovation = seconds - dot(terms_, f);
  error_ += kErrorWeight * (std::fabs(innovation) / seconds - error_);
  const double spread = dot(f, pf);
  double noise = kNoise * seconds * kNoise * seconds;
  const double unusual = innovation * innovation / (kOutlier * kOutlier * (spread + noise));
  if (unusual > 1 && innovation > 0) noise = noise * unusual + spread * (unusual - 1);
  for (size_t i = 0; i < kTerms; ++i) {
    const double gain = pf[i] / (spread + noise);
    terms_[i] += gain * innovation;
    for (size_t j = 0; j < kTerms; ++j) covariance_[i][j] -= gain * pf[j];
  }
  // Nothing takes less than no time. What was known of a coefficient that went below zero was wrong.
  for (size_t i = 0; i < kTerms; ++i) {
    if (terms_[i] >= 0) continue;
    terms_[i] = 0;
    for (size_t j = 0; j < kTerms; ++j) covariance_[i][j] = covariance_[j][i] = 0;
    covariance_[i][i] = kStartSpread * start_[i] * kStartSpread * start_[i];
  }
}

int32_t StepCost::tokens_within(double limit, const StepShape& step, int64_t first, int32_t most,
                                int32_t logit_rows) const {
  const auto fits = [&](int32_t count) { return seconds(step.with(first, count, logit_rows)) <= limit; };
  if (most <= 0 || !fits(1)) return 0;
  int32_t low = 1;
  int32_t high = most;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace inferno
