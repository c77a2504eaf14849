#include "backend/routing.h"

#include <algorithm>
#include <array>
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

void score_all(const float* logits, int64_t experts, const Routing& routing, float* scores) noexcept {
  const RouterScore score = routing.score;
  for (int64_t i = 0; i < experts; ++i) {
    const float logit = logits[i] * routing.logit_scale;
    switch (score) {
      case RouterScore::sigmoid:
        scores[i] = 1 / (1 + std::exp(-logit));
        break;
      case RouterScore::sqrt_softplus:
        scores[i] = std::sqrt(softplus(logit));
        break;
      default:
        scores[i] = logit;
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

// The sum of the best two, or the best where there is only one.
float best_two(const float* choice, int64_t count) noexcept {
  float first = -std::numeric_limits<float>::infinity();
  float second = first;
  for (int64_t i = 0; i < count; ++i) {
    if (choice[i] > first) {
      second = first;
      first = choice[i];
    } else if (choice[i] > second) {
      second = choice[i];
    }
  }
  return count > 1 ? first + second : first;
}

// Experts outside the best groups are taken: nobody can choose them. Of equal groups the first are better.
void keep_best_groups(float* choice, int64_t experts, const Routing& routing) noexcept {
  const int64_t size = experts / routing.groups;
  std::array<float, kMaxExpertGroups> worth;
  for (int32_t g = 0; g < routing.groups; ++g) worth[static_cast<size_t>(g)] = best_two(choice + g * size, size);
  for (int32_t g = 0; g < routing.groups; ++g) {
    const float own = worth[static_cast<size_t>(g)];
    int32_t better = 0;
    for (int32_t other = 0; other < routing.groups; ++other) {
      const float theirs = worth[static_cast<size_t>(other)];
      if (theirs > own || (theirs == own && other < g)) ++better;
    }
    if (better >= routing.groups_used) std::fill_n(choice + g * size, size, kTaken);
  }
}

}  // namespace

void route_row(const float* logits, const float* selection_bias, int64_t experts, const Routing& routing, float* scores,
               int32_t* ids, float* weights) noexcept {
  score_all(logits, experts, routing, scores);
  float* choice = scores + experts;
  for (int64_t i = 0; i < experts; ++i) {
    choice[i] = scores[i] + (selection_bias != nullptr ? selection_bias[i] : 0);
    if (std::isnan(choice[i])) choice[i] = -std::numeric_limits<float>::infinity();
  }
  if (routing.groups > 1) keep_best_groups(choice, experts, routing);
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
