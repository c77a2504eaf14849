#include "backend/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace inferno {
namespace {

// exp(x - max) / sum, in place.
void softmax(float* x, int64_t n) noexcept {
  const float most = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - most);
    sum += x[i];
  }
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] / sum);
}

float softplus(float x) {
  return std::max(x, 0.0F) + std::log1p(std::exp(-std::fabs(x)));
}

void score_all(const float* logits, int64_t experts, RouterScore score, float* scores) noexcept {
  for (int64_t i = 0; i < experts; ++i) {
    switch (score) {
      case RouterScore::sigmoid:
        scores[i] = 1 / (1 + std::exp(-logits[i]));
        break;
      case RouterScore::sqrt_softplus:
        scores[i] = std::sqrt(softplus(logits[i]));
        break;
      default:
        scores[i] = logits[i];
    }
  }
  if (score == RouterScore::softmax) softmax(scores, experts);
}

// An expert that a token has already. Two of the same would be more of its rows than there are tokens.
constexpr float kTaken = std::numeric_limits<float>::quiet_NaN();

// The first of the best that are not taken; there is one.
int64_t best_left(const float* choice, int64_t experts) noexcept {
  int64_t best = -1;
  for (int64_t i = 0; i < experts; ++i) {
    if (!std::isnan(choice[i]) && (best < 0 || choice[i] > choice[best])) best = i;
  }
  return best;
}

}  // namespace

void route_row(const float* logits, const float* selection_bias, int64_t experts, const Routing& routing, float* scores,
               int32_t* ids, float* weights) noexcept {
  score_all(logits, experts, routing.score, scores);
  float* choice = scores + experts;
  for (int64_t i = 0; i < experts; ++i) {
    choice[i] = scores[i] + (selection_bias != nullptr ? selection_bias[i] : 0);
    if (std::isnan(choice[i])) choice[i] = -std::numeric_limits<float>::infinity();
  }
  double sum = 0;
  for (int32_t j = 0; j < routing.used; ++j) {
    const int64_t best = best_left(choice, experts);
    choice[best] = kTaken;
    ids[j] = static_cast<int32_t>(best);
    weights[j] = scores[best];
    sum += weights[j];
  }
  if (routing.score == RouterScore::softmax_chosen) {
    softmax(weights, routing.used);
    sum = 1;
  }
  const double factor = routing.normalize ? routing.scale / sum : routing.scale;
  for (int32_t j = 0; j < routing.used; ++j) weights[j] = static_cast<float>(weights[j] * factor);
}

}  // namespace inferno
