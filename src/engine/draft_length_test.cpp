#include "engine/draft_length.h"

#include <gtest/gtest.h>

namespace inferno {
namespace {

constexpr double kPrice = 0.2;  // of a step, for one more token in it

// Tokens that `steps` steps could have made more, had nothing been guessed.
double lost_when_never_right(double price, int32_t steps, double entry = 0) {
  DraftLength length;
  double lost = 0;
  for (int32_t i = 0; i < steps; ++i) {
    const int32_t guessed = length.choose(15, price, entry);
    lost += guessed * price + (guessed > 0 ? entry : 0);
    length.observe(guessed, 0, price, guessed > 0 ? entry : 0);
  }
  return lost;
}

TEST(DraftLength, GuessesThatAreNeverRightCostLessThanFivePercent) {
  for (const double price : {0.02, 0.1, 0.2, 0.5, 0.9, 2.0}) {
    EXPECT_LE(lost_when_never_right(price, 256), 0.03 * 256) << price;
    EXPECT_LE(lost_when_never_right(price, 4096), 0.022 * 4096) << price;
    EXPECT_LE(lost_when_never_right(price, 256, 0.3), 0.03 * 256) << price;
  }
}

TEST(DraftLength, BecomesAsLongAsItMayWithGuessesThatAreAlwaysRight) {
  DraftLength length;
  for (int32_t i = 0; i < 6; ++i) {
    const int32_t guessed = length.choose(15, kPrice);
    ASSERT_GT(guessed, 0);
    length.observe(guessed, guessed, kPrice);
  }
  EXPECT_EQ(length.choose(15, kPrice), 15);
  EXPECT_EQ(length.choose(7, kPrice), 7);
}

TEST(DraftLength, StopsWhereOneMoreIsRightTooSeldomForItsPrice) {
  DraftLength length;
  for (int32_t i = 0; i < 200; ++i) length.observe(2, i % 2 == 0 ? 2 : 0, 0.05);  // two of three are right
  const int32_t cheap = length.choose(15, 0.05);
  const int32_t dear = length.choose(15, 0.4);
  EXPECT_GT(cheap, dear);
  EXPECT_GE(dear, 1);
  EXPECT_EQ(length.choose(15, 1), 0) << "a guess that costs a token gains nothing";
}

TEST(DraftLength, TriesAgainAfterAStretchWithoutRightGuesses) {
  DraftLength length;
  for (int32_t i = 0; i < 100; ++i) {
    const int32_t guessed = length.choose(15, kPrice);
    length.observe(guessed, 0, kPrice);
  }
  int32_t steps = 0;
  for (int32_t in_a_row = 0; in_a_row < 8; ++steps) {
    ASSERT_LT(steps, 100);
    const int32_t guessed = length.choose(15, kPrice);
    length.observe(guessed, guessed, kPrice);
    in_a_row = guessed;
  }
}

}  // namespace
}  // namespace inferno
