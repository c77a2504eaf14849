#include "backend/routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace inferno {
namespace {

struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed route(const std::vector<float>& logits, const Routing& routing, const std::vector<float>& bias = {}) {
  Routed result{std::vector<int32_t>(static_cast<size_t>(routing.used)),
                std::vector<float>(static_cast<size_t>(routing.used))};
  std::vector<float> scores(2 * logits.size());
  route_row(logits.data(), bias.empty() ? nullptr : bias.data(), static_cast<int64_t>(logits.size()), routing,
            scores.data(), result.ids.data(), result.weights.data());
  return result;
}

TEST(Routing, ExpertsComeBestFirstAndTheFirstOfEquals) {
  EXPECT_EQ(route({1, 3, 2, 3}, {.used = 3}).ids, (std::vector<int32_t>{1, 3, 2}));
  EXPECT_EQ(route({5, 5, 5}, {.used = 3}).ids, (std::vector<int32_t>{0, 1, 2}));
}

TEST(Routing, SoftmaxIsOfAllExpertsOrOfTheChosen) {
  const std::vector<float> logits = {0, std::log(2.0F), std::log(3.0F), std::log(4.0F)};
  const Routed all = route(logits, {.score = RouterScore::softmax, .used = 2, .normalize = false});
  EXPECT_FLOAT_EQ(all.weights[0], 0.4F);
  EXPECT_FLOAT_EQ(all.weights[1], 0.3F);
  const Routed chosen = route(logits, {.score = RouterScore::softmax_chosen, .used = 2, .normalize = false});
  EXPECT_FLOAT_EQ(chosen.weights[0], 4.0F / 7);
  EXPECT_FLOAT_EQ(chosen.weights[1], 3.0F / 7);
}

TEST(Routing, WeightsAreDividedByTheirSumThenScaled) {
  const Routed routed = route({0, 0, 0}, {.score = RouterScore::sigmoid, .used = 2, .scale = 3});
  EXPECT_FLOAT_EQ(routed.weights[0], 1.5F);
  EXPECT_FLOAT_EQ(routed.weights[1], 1.5F);
  EXPECT_FLOAT_EQ(route({0}, {.score = RouterScore::sqrt_softplus, .normalize = false}).weights[0],
                  std::sqrt(std::log(2.0F)));
}

TEST(Routing, ASelectionBiasChangesTheChoiceAndNoWeight) {
  const Routed routed = route({0, 2, 1}, {.score = RouterScore::sigmoid, .used = 1, .normalize = false}, {10, 0, 0});
  EXPECT_EQ(routed.ids[0], 0);
  EXPECT_FLOAT_EQ(routed.weights[0], 0.5F);
}

TEST(Routing, ExpertsOutsideTheBestGroupsAreNotChosen) {
  // The best expert is alone in its group; two good ones are worth more.
  const std::vector<float> logits = {5, -9, 2, 3, 1, 1, 2, 2.5F};
  Routing routing{.score = RouterScore::sigmoid, .used = 2, .groups = 4, .groups_used = 1};
  EXPECT_EQ(route(logits, routing).ids, (std::vector<int32_t>{3, 2}));
  routing.groups_used = 2;
  EXPECT_EQ(route(logits, routing).ids, (std::vector<int32_t>{3, 7}));
  routing.groups_used = 4;
  EXPECT_EQ(route(logits, routing).ids, (std::vector<int32_t>{0, 3}));
  const Routed equal = route({0, 0, 0, 0}, {.used = 2, .groups = 2, .groups_used = 1});
  EXPECT_EQ(equal.ids, (std::vector<int32_t>{0, 1})) << "of equal groups the first";
  const std::vector<float> bias = {0, 0, 0, 0, 0, 0, 3, 3};
  routing.groups_used = 1;
  const Routed biased = route(logits, routing, bias);
  EXPECT_EQ(biased.ids, (std::vector<int32_t>{7, 6})) << "groups are chosen with the bias too";
  const Routed alone = route({1, 3, 2}, {.used = 2, .groups = 3, .groups_used = 2});
  EXPECT_EQ(alone.ids, (std::vector<int32_t>{1, 2}));
}

TEST(Routing, LogitsAreScaledFirst) {
  const Routed routed = route({2, 0}, {.used = 2, .normalize = false, .logit_scale = 0.5F});
  EXPECT_FLOAT_EQ(routed.weights[0], std::exp(1.0F) / (std::exp(1.0F) + 1));
}

// Damaged weights show as NaN in the result, not as an expert that does not exist.
TEST(Routing, LogitsThatAreNoNumbersChooseDifferentExpertsThatExist) {
  for (int score = 0; score < kRouterScores; ++score) {
    const Routed routed = route({NAN, NAN, NAN}, {.score = static_cast<RouterScore>(score), .used = 2});
    for (size_t j = 0; j < 2; ++j) {
      EXPECT_TRUE(routed.ids[j] >= 0 && routed.ids[j] < 3);
      EXPECT_TRUE(std::isnan(routed.weights[j]));
    }
    EXPECT_NE(routed.ids[0], routed.ids[1]);
    const Routed grouped = route({NAN, NAN, NAN, NAN},
                                 {.score = static_cast<RouterScore>(score), .used = 2, .groups = 2, .groups_used = 1});
    EXPECT_NE(grouped.ids[0], grouped.ids[1]);
  }
}

}  // namespace
}  // namespace inferno
