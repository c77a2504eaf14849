#include "serve/thinking.h"

#include <gtest/gtest.h>

namespace inferno::serve {
namespace {

// However the text is cut into pieces.
void expect_split(std::string_view text, bool is_open, std::string_view thinking, std::string_view content) {
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    ThinkingSplitter splitter(is_open);
    ThinkingSplitter::Parts all;
    const auto add = [&](const ThinkingSplitter::Parts& parts) {
      all.thinking += parts.thinking;
      all.content += parts.content;
    };
    for (size_t i = 0; i < text.size(); i += piece) add(splitter.push(text.substr(i, piece)));
    add(splitter.finish());
    EXPECT_EQ(all.thinking, thinking) << text << " in pieces of " << piece;
    EXPECT_EQ(all.content, content) << text << " in pieces of " << piece;
  }
}

TEST(Thinking, IsTakenApartFromTheAnswerHoweverItArrives) {
  expect_split("<think>\nHm, 1 < 2.\n\nSo </thin\n</think>\n\nYes.", false, "Hm, 1 < 2.\n\nSo </thin", "Yes.");
  expect_split("\n<think></think>Yes.", false, "", "Yes.");
  expect_split("Hm.\n</think>\n\nYes. <think>", true, "Hm.", "Yes. <think>");
  expect_split("<think>\n\n</think>\n\nYes.\n", false, "", "Yes.\n");
}

TEST(Thinking, AnAnswerWithoutItIsLeftAlone) {
  expect_split(" <thinking> is no tag </think>", false, "", " <thinking> is no tag </think>");
  expect_split("Plain.\n", false, "", "Plain.\n");
  expect_split("<thi", false, "", "<thi");
}

TEST(Thinking, ThatNeverEndsIsThinking) {
  expect_split("<think>on and on </", false, "on and on </", "");
  EXPECT_TRUE(ends_in_thinking("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_thinking("<think>\n\n</think>\n\n"));
}

}  // namespace
}  // namespace inferno::serve
