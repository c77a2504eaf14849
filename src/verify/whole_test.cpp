#include "verify/whole.h"

#include <gtest/gtest.h>

#include <vector>

namespace inferno {
namespace {

// Two positions of a vocabulary of three; the second has a near tie between tokens 0 and 1.
const std::vector<float> kReference = {5, 1, 0, 2.0F, 1.99F, 0};

std::vector<float> with_noise(float noise) {
  std::vector<float> logits = kReference;
  float sign = 1;
  for (float& x : logits) x += noise * sign, sign = -sign;
  return logits;
}

TEST(Whole, EqualRunsAreTheSame) {
  WholeComparison whole(3);
  whole.add_logits(kReference, kReference);
  whole.add_texts(std::vector<int32_t>{0, 0}, std::vector<int32_t>{0, 0}, kReference);
  EXPECT_EQ(whole.noise(), 0);
  EXPECT_EQ(whole.mean_divergence(), 0);
  EXPECT_FALSE(whole.parting_margin());
  EXPECT_EQ(whole.verdict(), "");
}

TEST(Whole, TextsMayPartAtANearTie) {
  WholeComparison whole(3);
  whole.add_logits(with_noise(0.01F), kReference);
  whole.add_texts(std::vector<int32_t>{0, 1, 2}, std::vector<int32_t>{0, 0, 0}, kReference);
  EXPECT_NEAR(whole.noise(), 0.01, 1e-6);
  ASSERT_TRUE(whole.parting_margin());
  EXPECT_NEAR(*whole.parting_margin(), 0.01, 1e-6);
  EXPECT_EQ(whole.verdict(), "");
}

TEST(Whole, TextsMustNotPartWhereTheReferenceIsSure) {
  WholeComparison whole(3);
  whole.add_logits(with_noise(0.01F), kReference);
  whole.add_texts(std::vector<int32_t>{1, 0}, std::vector<int32_t>{0, 0}, kReference);
  ASSERT_TRUE(whole.parting_margin());
  EXPECT_NEAR(*whole.parting_margin(), 4, 1e-6);
  EXPECT_NE(whole.verdict().find("part"), std::string::npos) << whole.verdict();
}

TEST(Whole, TheFirstTokenThatDiffersCounts) {
  WholeComparison whole(3);
  whole.add_logits(with_noise(0.01F), kReference);
  // The near tie comes after the texts have parted: its margin says nothing.
  whole.add_texts(std::vector<int32_t>{2, 1}, std::vector<int32_t>{0, 0}, kReference);
  EXPECT_NEAR(*whole.parting_margin(), 5, 1e-6);
}

TEST(Whole, BehindTheKnownRowsNoMarginIsClaimed) {
  WholeComparison whole(3);
  whole.add_logits(with_noise(0.01F), kReference);
  whole.add_texts(std::vector<int32_t>{0, 0, 1}, std::vector<int32_t>{0, 0, 0}, kReference);
  EXPECT_FALSE(whole.parting_margin());
  EXPECT_NE(whole.report().find("0 of 1 the same"), std::string::npos) << whole.report();
  EXPECT_EQ(whole.verdict(), "");
}

TEST(Whole, OtherLogitsDiverge) {
  WholeComparison whole(3);
  whole.add_logits(std::vector<float>{1, 5, 0, 2, 1.99F, 0}, kReference);
  EXPECT_NE(whole.verdict().find("diverge"), std::string::npos) << whole.verdict();
}

}  // namespace
}  // namespace inferno
