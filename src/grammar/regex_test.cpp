// Regular expressions: what they take, and what is refused by its name.
#include <gtest/gtest.h>

#include "grammar/test_grammar.h"

namespace inferno::grammar {
namespace {

TEST(Regex, TakesExactlyItsTexts) {
  EXPECT_TRUE(regex_takes("abc", "abc"));
  EXPECT_FALSE(regex_takes("abc", "ab"));
  EXPECT_FALSE(regex_takes("abc", "abcd"));
  EXPECT_TRUE(regex_takes("a|bc?", "b"));
  EXPECT_TRUE(regex_takes("(?:ab){2,3}", "ababab"));
  EXPECT_FALSE(regex_takes("(?:ab){2,3}", "ab"));
  EXPECT_TRUE(regex_takes("[^a-c]+", "xyz"));
  EXPECT_FALSE(regex_takes("[^a-c]+", "xbz"));
  EXPECT_TRUE(regex_takes("\\d{3}-\\w+\\s?", "123-a_b "));
  EXPECT_TRUE(regex_takes("^a.c$", "axc"));
  EXPECT_FALSE(regex_takes("a.c", "a\nc"));
  EXPECT_TRUE(regex_takes("(?<year>[0-9]{4})", "2026"));
  EXPECT_TRUE(regex_takes("a{,2}", "a{,2}"));  // a brace that means itself
  EXPECT_TRUE(regex_takes("x*?y+?", "xxy"));
}

TEST(Regex, KnowsCharactersBeyondAscii) {
  EXPECT_TRUE(regex_takes(".", "\xC3\xBC"));
  EXPECT_TRUE(regex_takes(".", "\xF0\x9F\x98\x80"));
  EXPECT_FALSE(regex_takes(".", "\xC3"));
  EXPECT_FALSE(regex_takes(".", "\xFF"));
  EXPECT_FALSE(regex_takes(".", "\xED\xA0\x80"));  // half a pair
  EXPECT_TRUE(regex_takes("[\\u00e4-\\u00fc]", "\xC3\xB6"));
  EXPECT_TRUE(regex_takes("\\ud83d\\ude00", "\xF0\x9F\x98\x80"));
  EXPECT_TRUE(regex_takes("[\xC3\xA4\xE2\x82\xAC]", "\xE2\x82\xAC"));
  EXPECT_TRUE(regex_takes("\\u{1F600}", "\xF0\x9F\x98\x80"));
}

TEST(Regex, RefusesByNameWhatItCannotDo) {
  const auto error = [](const std::string& pattern) { return error_of(SourceKind::regex, pattern); };
  EXPECT_NE(error("a(?=b)").find("look-ahead"), std::string::npos);
  EXPECT_NE(error("(a)\\1").find("back-reference"), std::string::npos);
  EXPECT_NE(error("\\bword").find("\\b"), std::string::npos);
  EXPECT_NE(error("\\p{L}").find("\\p"), std::string::npos);
  EXPECT_NE(error("a(b").find("no )"), std::string::npos);
  EXPECT_NE(error("a)").find(") too many"), std::string::npos);
  EXPECT_NE(error("[a").find("no ]"), std::string::npos);
  EXPECT_NE(error("*").find("nothing to repeat"), std::string::npos);
  EXPECT_NE(error("a{3,2}").find("above"), std::string::npos);
  EXPECT_NE(error("\xFF").find("UTF-8"), std::string::npos);
  EXPECT_NE(error("a^b").find("not at its end"), std::string::npos);
  EXPECT_NE(error("[]").find("no text fits"), std::string::npos);
}

}  // namespace
}  // namespace inferno::grammar
