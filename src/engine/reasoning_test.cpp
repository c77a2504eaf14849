#include "engine/reasoning.h"

#include <gtest/gtest.h>

namespace inferno {
namespace {

struct Split {
  std::string thinking, answer;
  friend bool operator==(const Split&, const Split&) = default;
};
std::ostream& operator<<(std::ostream& out, const Split& split) {
  return out << "thinking \"" << split.thinking << "\", answer \"" << split.answer << "\"";
}

Split split(std::string_view text, size_t piece, std::string_view prompt_end = "assistant\n") {
  Split result;
  ReasoningSplitter splitter(prompt_end, [&](bool thinking, std::string_view fresh) {
    EXPECT_FALSE(fresh.empty());
    (thinking ? result.thinking : result.answer) += fresh;
  });
  for (size_t i = 0; i < text.size(); i += piece) splitter.push(text.substr(i, piece));
  splitter.finish();
  return result;
}

TEST(Reasoning, AnswersAreSplitAtTheirMarkersHoweverTheTextComes) {
  struct Case {
    std::string_view text;
    Split expected;
  };
  const Case cases[] = {
      {"<think>\nHm, a < b.\n</think>\n\nYes.\n", {"Hm, a < b.", "Yes.\n"}},
      {" <think>\n\n</think>\n\nYes.", {"", "Yes."}},
      {"[THINK]a [/THIN b[/THINK]c", {"a [/THIN b", "c"}},
      {"<seed:think>a</think></seed:think>b", {"a</think>", "b"}},
      {"<|channel|>analysis<|message|>Hm. <|end|><|start|>assistant<|channel|>final<|message|>Yes.", {"Hm.", "Yes."}},
      {"<|channel|>final<|message|>Yes.", {"", "Yes."}},
      {"<|channel|>fin", {"", "<|channel|>fin"}},
      {"Yes.", {"", "Yes."}},
      {" Yes <think>x</think>", {"", " Yes <think>x</think>"}},
      {"<thin air>", {"", "<thin air>"}},
      {"<thi", {"", "<thi"}},
      {"<think>never ends </thi", {"never ends </thi", ""}},
      {"  ", {"", "  "}},
      {"", {"", ""}},
  };
  for (const Case& one : cases) {
    for (size_t piece = 1; piece <= one.text.size() + 1; ++piece) {
      EXPECT_EQ(split(one.text, piece), one.expected) << one.text << " in pieces of " << piece;
    }
  }
}

TEST(Reasoning, ATemplateThatOpensTheBlockMakesTheAnswerBeginInside) {
  EXPECT_EQ(split("Hm.</think>Yes.", 3, "assistant\n<think>\n"), (Split{"Hm.", "Yes."}));
  EXPECT_EQ(split("Yes.", 3, "<think>\n\n</think>\n\n"), (Split{"", "Yes."}));
}

}  // namespace
}  // namespace inferno
