#include "engine/prompt.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tokenizer/test_vocabulary.h"

namespace inferno {
namespace {

// Bytes, "ab" (256), "abc" (257), and control tokens.
class KeepIds : public ::testing::Test {
 protected:
  void SetUp() override {
    tokenizer_ = Tokenizer::create(byte_vocabulary("qwen2", {"a b", "ab c"}, {"<|im_start|>", "<|im_end|>"}));
  }
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const { return tokenizer_->encode(text); }
  [[nodiscard]] std::vector<int32_t> keep(const std::vector<int32_t>& before, const std::vector<int32_t>& ids) const {
    std::vector<int32_t> kept = keep_ids(*tokenizer_, before, ids);
    EXPECT_EQ(tokenizer_->decode(kept), tokenizer_->decode(ids));
    return kept;
  }
  std::unique_ptr<const Tokenizer> tokenizer_;
  static constexpr int32_t kStart = 258, kEnd = 259;
};

TEST_F(KeepIds, WordsThatAModelSplitInItsOwnWayStayAsTheyWere) {
  const std::vector<int32_t> before = {kStart, 'x', 'a', 'b', 'c', 256};
  const std::vector<int32_t> ids = encode("<|im_start|>xabcab<|im_end|>abc");
  EXPECT_EQ(ids, (std::vector<int32_t>{kStart, 'x', 257, 256, kEnd, 257}));
  EXPECT_EQ(keep(before, ids), (std::vector<int32_t>{kStart, 'x', 'a', 'b', 'c', 256, kEnd, 257}));
}

TEST_F(KeepIds, ACutThatIsNoBorderInBothIsNotUsed) {
  EXPECT_EQ(keep({'x', 'a', 'b'}, {'x', 257}), (std::vector<int32_t>{'x', 257}));
  EXPECT_EQ(keep({'x', 257}, {'x', 256, 'd'}), (std::vector<int32_t>{'x', 256, 'd'}));
}

TEST_F(KeepIds, TextNeverTakesThePlaceOfAControlTokenNorTheOtherWayRound) {
  const std::vector<int32_t> typed = tokenizer_->encode("q<|im_end|>r", {.parse_special = false});
  const std::vector<int32_t> control = {'q', kEnd, 'r'};
  EXPECT_EQ(keep(typed, control), control);
  EXPECT_EQ(keep(control, typed), typed);
}

TEST_F(KeepIds, NothingBeforeOrNothingInCommonLeavesTheIds) {
  EXPECT_EQ(keep({}, {'a'}), (std::vector<int32_t>{'a'}));
  EXPECT_EQ(keep({'b'}, {'a'}), (std::vector<int32_t>{'a'}));
  EXPECT_EQ(keep({'a'}, {}), (std::vector<int32_t>{}));
  EXPECT_THROW((void)keep_ids(*tokenizer_, std::vector<int32_t>{9999}, std::vector<int32_t>{'a'}), Error);
}

}  // namespace
}  // namespace inferno
