#include "engine/ngram_index.h"

#include <gtest/gtest.h>

namespace inferno {
namespace {

std::vector<int32_t> draft_of(const std::vector<int32_t>& text, size_t most,
                              const std::vector<int32_t>& prediction = {}) {
  NgramIndex index(prediction, static_cast<int32_t>(text.size()));
  index.update(text);
  std::vector<int32_t> out(most);
  out.resize(static_cast<size_t>(index.draft(out)));
  return out;
}

TEST(NgramIndex, GuessesWhatFollowedTheLatestTokensBefore) {
  EXPECT_EQ(draft_of({1, 2, 3, 4, 5, 9, 2, 3}, 2), (std::vector<int32_t>{4, 5}));
}

TEST(NgramIndex, GuessesNothingAfterTokensThatNeverStoodTogether) {
  EXPECT_TRUE(draft_of({1, 2, 3, 4, 5}, 4).empty());
  EXPECT_TRUE(draft_of({1, 2, 3, 1, 3}, 4).empty()) << "one token alone says little";
  EXPECT_TRUE(draft_of({7}, 4).empty());
  EXPECT_TRUE(draft_of({}, 4).empty());
}

TEST(NgramIndex, PrefersTheLongestAgreementAndOfEqualsTheLatest) {
  EXPECT_EQ(draft_of({5, 1, 2, 30, 6, 1, 2, 40, 5, 1, 2}, 1), (std::vector<int32_t>{30}));
  EXPECT_EQ(draft_of({5, 1, 2, 30, 6, 1, 2, 40, 7, 1, 2}, 1), (std::vector<int32_t>{40}));
}

TEST(NgramIndex, GoesOnWithATextThatRepeatsForAsLongAsWanted) {
  EXPECT_EQ(draft_of({9, 1, 2, 1, 2}, 7), (std::vector<int32_t>{1, 2, 1, 2, 1, 2, 1}));
  EXPECT_EQ(draft_of({9, 4, 4, 4}, 3), (std::vector<int32_t>{4, 4, 4}));
}

TEST(NgramIndex, FindsContinuationsInThePredictionAndStopsAtItsEnd) {
  EXPECT_EQ(draft_of({7, 8, 1, 2}, 8, {1, 2, 3, 4}), (std::vector<int32_t>{3, 4}));
  EXPECT_TRUE(draft_of({7, 8, 3, 4}, 8, {1, 2, 3, 4}).empty()) << "nothing follows, and least of all the text";
}

TEST(NgramIndex, TakesItsTextTokenByTokenAsAtOnce) {
  const std::vector<int32_t> text = {1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2};
  NgramIndex grown({}, static_cast<int32_t>(text.size()));
  for (size_t i = 1; i <= text.size(); ++i) {
    grown.update(std::span(text).first(i));
    std::vector<int32_t> out(3);
    out.resize(static_cast<size_t>(grown.draft(out)));
    EXPECT_EQ(out, draft_of({text.begin(), text.begin() + static_cast<ptrdiff_t>(i)}, 3)) << i;
  }
}

}  // namespace
}  // namespace inferno
