#include "backend/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace inferno {
namespace {

int32_t draw(const std::vector<float>& logits, const SampleParams& params, const std::vector<int32_t>& history = {}) {
  std::vector<SampleCandidate> scratch(logits.size());
  return sample_row(logits.data(), static_cast<int64_t>(logits.size()), params, history.data(), scratch.data());
}

std::vector<int> counts(const std::vector<float>& logits, SampleParams params, int draws) {
  std::vector<int> result(logits.size());
  for (params.position = 0; params.position < draws; ++params.position) {
    ++result[static_cast<size_t>(draw(logits, params))];
  }
  return result;
}

TEST(Sampling, TemperatureZeroTakesTheFirstOfEqualMaxima) {
  EXPECT_EQ(draw({1, 5, 5, 2}, {}), 1);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(draw({-infinity, -infinity}, {}), 0);
  for (const int64_t count : {1, 31, 33, 4096, 10007}) {
    for (const int64_t at : {int64_t{0}, count / 3, count - 1}) {
      std::vector<float> logits(static_cast<size_t>(count), -1.0F);
      logits[static_cast<size_t>(at)] = 2;
      logits.back() = 2;
      EXPECT_EQ(draw(logits, {}), at) << count;
    }
  }
}

TEST(Sampling, TheLargestOfSlicesIsTheLargestOfAll) {
  std::vector<float> logits(10'000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 1009);
  logits[5] = NAN;
  const SampleCandidate whole = first_largest(logits.data(), 0, 10'000);
  EXPECT_EQ(whole.id, draw(logits, {}));
  for (const int64_t slice : {1, 16, 1000, 4096, 9'999}) {
    SampleCandidate best{-INFINITY, 0};
    for (int64_t begin = 0; begin < 10'000; begin += slice) {
      const SampleCandidate part = first_largest(logits.data(), begin, std::min<int64_t>(begin + slice, 10'000));
      if (part.logit > best.logit) best = part;
    }
    EXPECT_EQ(best.id, whole.id) << slice;
    EXPECT_EQ(best.logit, whole.logit) << slice;
  }
}

TEST(Sampling, RepetitionPenaltyAppliesOncePerToken) {
  SampleParams params;
  params.repeat_penalty = 1.5F;
  params.history_length = 3;
  // 6 / 1.5 = 4 < 5, but applied twice it would fall below 3 as well.
  EXPECT_EQ(draw({6, 5, 3}, params, {0, 0, 0}), 1);
  EXPECT_EQ(draw({6, 3.9F, 3}, params, {0, 0, 0}), 0);
  params.history_length = 1;
  EXPECT_EQ(draw({-1, -1.2F}, params, {0}), 1);  // a negative logit moves down too
}

TEST(Sampling, TopKOneIsGreedyAtAnyTemperature) {
  SampleParams params{.temperature = 5, .top_k = 1};
  for (params.position = 0; params.position < 100; ++params.position) EXPECT_EQ(draw({1, 2, 3, 0}, params), 2);
}

TEST(Sampling, FrequenciesFollowTheSoftmaxOfTheTemperature) {
  const std::vector<float> logits = {0, 1, 2};
  const SampleParams params{.temperature = 0.5F, .seed = 7};
  const std::vector<int> seen = counts(logits, params, 20000);
  double total = 0;
  for (const float l : logits) total += std::exp(l / 0.5);
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_NEAR(seen[i] / 20000.0, std::exp(logits[i] / 0.5) / total, 0.015) << i;
  }
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  const std::vector<int> seen = counts(logits, {.temperature = 1, .top_p = 0.7F}, 2000);
  EXPECT_GT(seen[0], 0);
  EXPECT_GT(seen[1], 0);
  EXPECT_EQ(seen[2], 0);
}

TEST(Sampling, TopPOverManyEqualCandidatesCountsThemAll) {
  const std::vector<float> logits(1000, 1.0F);
  SampleParams params{.temperature = 1, .top_p = 0.5F, .seed = 3};
  for (params.position = 0; params.position < 500; ++params.position) EXPECT_LT(draw(logits, params), 501);
}

TEST(Sampling, MinPDropsWhatIsFarBelowTheBest) {
  const std::vector<float> logits = {std::log(0.6F), std::log(0.35F), std::log(0.05F)};
  const std::vector<int> seen = counts(logits, {.temperature = 1, .min_p = 0.1F}, 2000);
  EXPECT_GT(seen[1], 0);
  EXPECT_EQ(seen[2], 0);
}

TEST(Sampling, TheDrawDependsOnSeedSequenceAndPositionAlone) {
  EXPECT_EQ(sample_uniform(1, 2, 3), sample_uniform(1, 2, 3));
  EXPECT_NE(sample_uniform(1, 2, 3), sample_uniform(2, 2, 3));
  EXPECT_NE(sample_uniform(1, 2, 3), sample_uniform(1, 3, 3));
  EXPECT_NE(sample_uniform(1, 2, 3), sample_uniform(1, 2, 4));
}

TEST(Sampling, NanAndInfinityNeverBreakTheDraw) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(draw({nan, 1, nan}, {.temperature = 1, .top_k = 2, .top_p = 0.9F}), 1);
  EXPECT_EQ(draw({nan, 1, nan}, {}), 1);
  const int32_t id = draw({nan, nan}, {.temperature = 1, .top_p = 0.9F, .min_p = 0.1F});
  EXPECT_TRUE(id == 0 || id == 1);
}

}  // namespace
}  // namespace inferno
