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

}  // namespace

void route_row(const float* logits, const float* selection_bias, int64_t experts, const Routing& routing, float* scores,
               int32_t* ids, float* weights) noexcept {
  score_all(logits, experts, routing.score, scores);
  float* choice = scores + experts;
  for (int64_t i = 0; i < experts; ++i) choice[i] = scores[i] + (selection_bias != nullptr ? selection_bias[i] : 0);
  double sum = 0;
  for (int32_t j = 0; j < routing.used; ++j) {
    const int64_t best = std::max_element(choice, choice + experts) - choice;
    choice[best] = -std::numeric_limits<float>::infinity();
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
