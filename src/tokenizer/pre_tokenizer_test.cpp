#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "tokenizer/normalize.h"

namespace inferno {
namespace {

std::vector<std::string> split(std::string_view name, std::string_view text) {
  std::vector<std::string_view> words;
  PreTokenizer(name).split(text, words);
  return {words.begin(), words.end()};
}

using Words = std::vector<std::string>;

TEST(PreTokenizer, Gpt2KeepsDigitsTogetherAndGivesTheLastSpaceToTheNextWord) {
  EXPECT_EQ(split("gpt-2", "Hello  world's 1234!?"), (Words{"Hello", " ", " world", "'s", " 1234", "!?"}));
  EXPECT_EQ(split("gpt-2", "I'LL go"), (Words{"I", "'", "LL", " go"}));
  EXPECT_EQ(split("gpt-2", "a \n\n b\n"), (Words{"a", " \n\n", " b", "\n"}));
}

TEST(PreTokenizer, Llama3TakesThreeDigitsAndAnyCaseOfContractions) {
  EXPECT_EQ(split("llama-bpe", "I'LL pay 12345$"), (Words{"I", "'LL", " pay", " ", "123", "45", "$"}));
  EXPECT_EQ(split("llama-bpe", "x=(y);\n\n  z"), (Words{"x", "=(", "y", ");\n\n", " ", " z"}));
  EXPECT_EQ(split("llama-bpe", " \n \n "), (Words{" \n \n", " "}));
}

TEST(PreTokenizer, Qwen2TakesOneDigit) {
  EXPECT_EQ(split("qwen2", "v12 \xE0\xA5\xA7\xE0\xA5\xA8"),
            (Words{"v", "1", "2", " ", "\xE0\xA5\xA7", "\xE0\xA5\xA8"}));
}

TEST(PreTokenizer, SmolLmSplitsDigitsBeforeAnythingElse) {
  // The spaces before a digit end their stretch and so stay together; gpt-2 gives one of them to the number.
  EXPECT_EQ(split("smollm", "a  12b"), (Words{"a", "  ", "1", "2", "b"}));
  EXPECT_EQ(split("gpt-2", "a  12b"), (Words{"a", " ", " 12", "b"}));
}

// What Python's regex module makes of the tokenizers' own patterns.
TEST(PreTokenizer, NewerPatternsTakeMarksIntoWordsAndEndThemAtCapitals) {
  const std::string text =
      "HelloWorld it's IT'S 12345  fooBar/\n\n cafe\xCC\x81 \xC3\x89"
      "COLE a/b//\r\n  x";
  const std::string cafe = " cafe\xCC\x81";
  const std::string ecole =
      " \xC3\x89"
      "COLE";
  EXPECT_EQ(split("tekken", text),
            (Words{"Hello", "World", " it", "'s",    " IT", "'S",  " ",  "1",  "2",      "3", "4", "5",
                   " ",     " foo",  "Bar", "/\n\n", cafe,  ecole, " a", "/b", "//\r\n", " ", " x"}));
  EXPECT_EQ(split("gpt-4o", text), (Words{"Hello", "World", " it's", " IT'S", " ", "123", "45", " ", " foo", "Bar",
                                          "/\n\n", cafe, ecole, " a", "/b", "//\r\n", " ", " x"}));
  EXPECT_EQ(split("qwen35", text),
            (Words{"HelloWorld", " it",     "'s",    " IT", "'S",  " ",  "1",  "2",      "3", "4", "5",
                   " ",          " fooBar", "/\n\n", cafe,  ecole, " a", "/b", "//\r\n", " ", " x"}));
  // Devanagari: vowel signs are marks.
  const std::string namaste = " \xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87";
  for (const std::string_view name : {"tekken", "gpt-4o", "qwen35"}) {
    EXPECT_EQ(split(name, namaste), (Words{namaste})) << name;
  }
}

TEST(PreTokenizer, WhiteSpaceIsWhatUnicodeSaysItIs) {
  // U+3000 is white space; U+180E and U+200B are not.
  EXPECT_EQ(split("gpt-2", "\xE3\x80\x80\xE3\x80\x80x"), (Words{"\xE3\x80\x80", "\xE3\x80\x80", "x"}));
  EXPECT_EQ(split("gpt-2", "\xE1\xA0\x8E!"), (Words{"\xE1\xA0\x8E!"}));
  EXPECT_EQ(split("gpt-2", "\xE2\x80\x8B!"), (Words{"\xE2\x80\x8B!"}));
  EXPECT_EQ(split("gpt-2", "\xC2\x85!"), (Words{"\xC2\x85", "!"}));
}

TEST(PreTokenizer, MillionCharacterRunsAreOneWord) {
  const std::string spaces(1'000'000, ' ');
  for (const std::string_view name : {"gpt-2", "llama-bpe", "qwen2", "smollm"}) {
    EXPECT_EQ(split(name, spaces), (Words{spaces})) << name;
    EXPECT_EQ(split(name, spaces + "x"), (Words{spaces.substr(1), " x"})) << name;
    const std::string letters(1'000'000, 'a');
    EXPECT_EQ(split(name, letters), (Words{letters})) << name;
  }
}

TEST(PreTokenizer, EmptyNameMeansGpt2AndUnknownNamesAreListed) {
  EXPECT_EQ(split("", "'S 12"), split("gpt-2", "'S 12"));
  try {
    const PreTokenizer unknown("no-such\nname");
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("tokenizer.ggml.pre"), std::string::npos) << message;
    EXPECT_NE(message.find("qwen2, "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Normalize, ComposesOrdersAndLeavesTheRest) {
  EXPECT_EQ(normalize_nfc(""), "");
  EXPECT_EQ(normalize_nfc("plain ASCII"), "plain ASCII");
  EXPECT_EQ(normalize_nfc("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(normalize_nfc("cafe\xCC\x81!"), "caf\xC3\xA9!");
  EXPECT_EQ(normalize_nfc("e\xCC\x81"
                          "e\xCC\x81"),
            "\xC3\xA9\xC3\xA9");
  // Dot above (230) and dot below (220) after s: ordered, then both composed.
  EXPECT_EQ(normalize_nfc("s\xCC\x87\xCC\xA3"), "\xE1\xB9\xA9");
  EXPECT_EQ(normalize_nfc("\xE2\x84\xAB"), "\xC3\x85");                              // Angstrom sign
  EXPECT_EQ(normalize_nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "\xEA\xB0\x81");  // Hangul
  EXPECT_EQ(normalize_nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");              // excluded from composition
  EXPECT_EQ(normalize_nfc("\xCC\x81x"), "\xCC\x81x");
}

TEST(Normalize, LongRunsOfMarksTakeNoQuadraticTime) {
  std::string marks = "a";
  for (int i = 0; i < 300'000; ++i) marks += i % 2 == 0 ? "\xCC\x81" : "\xCC\xA3";
  const std::string composed = normalize_nfc(marks);
  // a + dot below = U+1EA1; the other dots come before all acutes.
  EXPECT_EQ(composed.substr(0, 5), "\xE1\xBA\xA1\xCC\xA3");
  EXPECT_EQ(composed.substr(composed.size() - 2), "\xCC\x81");
  EXPECT_EQ(composed.size(), 3 + 2 * 299'999U);
}

}  // namespace
}  // namespace inferno
