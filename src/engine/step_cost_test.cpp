#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace inferno {
namespace {

// Seconds a machine takes that the model does not know.
double truth(const StepShape& step) {
  return 9e-3 + 1e-3 * step.rows + 1.8e-3 * step.tokens + 2e-8 * static_cast<double>(step.context);
}

StepShape random_step(std::mt19937& random) {
  StepShape step;
  for (int32_t i = static_cast<int32_t>(random() % 8); i > 0; --i) step = step.with(random() % 2000, 1, 1);
  const int64_t first = random() % 2000;
  const int32_t count = 1 + static_cast<int32_t>(random() % 64);
  return step.with(first, count, 1);
}

TEST(StepCost, FollowsAMachineTenTimesFasterOrSlowerThanGuessedWithinTwentySteps) {
  for (const double factor : {0.1, 1.0, 10.0}) {
    for (uint32_t seed = 1; seed <= 50; ++seed) {
      StepCost cost({9e-3 * factor, 1e-3 * factor, 1.8e-3 * factor, 2e-8 * factor});
      std::mt19937 random(seed);
      const auto observe = [&](int count) {
        for (int i = 0; i < count; ++i) {
          const StepShape step = random_step(random);
          cost.observe(step, truth(step));
        }
      };
      const auto worst = [&] {
        double most = 0;
        for (int i = 0; i < 100; ++i) {
          const StepShape step = random_step(random);
          most = std::max(most, std::fabs(cost.seconds(step) / truth(step) - 1));
        }
        return most;
      };
      observe(20);
      EXPECT_LT(worst(), 0.5) << factor << ", seed " << seed;
      observe(20);
      EXPECT_LT(worst(), 0.15) << factor << ", seed " << seed;
    }
  }
}

TEST(StepCost, OneDisturbedStepChangesLittle) {
  StepCost cost({9e-3, 1e-3, 1.8e-3, 2e-8});
  std::mt19937 random(2);
  for (int i = 0; i < 50; ++i) {
    const StepShape step = random_step(random);
    cost.observe(step, truth(step));
  }
  const StepShape step = random_step(random);
  cost.observe(step, 20 * truth(step));
  EXPECT_NEAR(cost.seconds(step) / truth(step), 1, 0.3);
}

TEST(StepCost, TokensWithinATimeAreTheMostThatFit) {
  const StepCost cost({10e-3, 1e-3, 2e-3, 1e-8});
  const StepShape decoding = StepShape().with(100, 1, 1).with(100, 1, 1);
  const int32_t tokens = cost.tokens_within(0.1, decoding, 0, 512, 1);
  EXPECT_LE(cost.seconds(decoding.with(0, tokens, 1)), 0.1);
  EXPECT_GT(cost.seconds(decoding.with(0, tokens + 1, 1)), 0.1);
  EXPECT_EQ(cost.tokens_within(0.1, decoding, 0, 5, 1), 5);
  EXPECT_EQ(cost.tokens_within(0.001, decoding, 0, 512, 1), 0);
  EXPECT_EQ(cost.tokens_within(0.1, decoding, 0, 0, 1), 0);
}

TEST(StepCost, ATimeThatIsNotPositiveIsIgnored) {
  StepCost cost({10e-3, 1e-3, 2e-3, 1e-8});
  const double before = cost.seconds({.rows = 1, .tokens = 1, .context = 1});
  cost.observe({.rows = 1, .tokens = 1, .context = 1}, 0);
  EXPECT_EQ(cost.seconds({.rows = 1, .tokens = 1, .context = 1}), before);
}

// The first counts whole; of later ones a single disturbed step counts for little, and a lasting change in full.
TEST(DecodeTime, FollowsTheLastFewSteps) {
  DecodeTime time;
  EXPECT_EQ(time.tokens, 0);
  time.observe(4, 0.04);
  EXPECT_DOUBLE_EQ(time.seconds, 0.04);
  time.observe(4, 0.14);
  EXPECT_LT(time.seconds, 0.065);
  for (int i = 0; i < 40; ++i) time.observe(8, 0.08);
  EXPECT_NEAR(time.seconds, 0.08, 1e-4);
  EXPECT_EQ(time.tokens, 8);
}

}  // namespace
}  // namespace inferno
