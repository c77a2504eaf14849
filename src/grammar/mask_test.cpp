// Masks of tokens against what accepting them one by one says, rollback, forced text, and memory that runs out.
#include <gtest/gtest.h>

#include <random>

#include "grammar/test_grammar.h"

namespace inferno::grammar {
namespace {

const std::vector<std::string> kTokens = {"{\"", "\":", "\": ", "\",", "\", \"", "}", " ", "  ", "\n", "true", "fal",
                                          "null", "12", "0.5", "\"a\"", "name", "x", "é", "\"}]", "],[", "[[", "]]",
                                          "-1", "e+", "\\n", "\\u00e", "\xC3", "", "na\"", "\":1", "ok\",\"x", "   \n",
                                          "éé", "né€x", "abcd", "abcdefgh", "😀", "\xC3\xA9\xC3", "x\xE2\x82", "nam",
                                          // As long as plain tokens are, and longer.
                                          "abcdefghijklmnopabcdefghijklmnop", "abcdefghijklmnopabcdefghijklmnopq"};

const std::vector<std::string> kSchemas = {
    "{}",
    R"({"type":"object","properties":{"name":{"type":"string"},"x":{"type":"integer","minimum":-10,"maximum":12}},
        "required":["name"],"additionalProperties":{"type":"boolean"}})",
    R"({"type":"array","items":{"anyOf":[{"type":"string","maxLength":3},{"type":"null"},{"$ref":"#"}]},"maxItems":4})",
    R"({"enum":["name","na",12,[true],null]})",
    R"({"type":"string","pattern":"^(ok|no)+$"})",
    R"({"type":"string","maxLength":5})",
    R"({"type":"string","minLength":2,"maxLength":40})",
    R"({"type":"string","minLength":20})",
    R"({"type":"string","maxLength":20000})",
    R"({"type":"array","items":{"type":"string","minLength":8191,"maxLength":16390}})",
    R"({"type":"string","pattern":"^[a-zé]+$","maxLength":6})",
    R"({"anyOf":[{"type":"string","maxLength":3},{"type":"string","pattern":"^[a-h]*$"},{"type":"integer"}]})",
    R"({"type":"object","properties":{"name":{},"nam":{},"né":{}},"propertyNames":{"maxLength":6}})",
    R"({"type":"object","patternProperties":{"^.{1,40}$":{"type":"null"}},"additionalProperties":false})"};

// The reference: every token by itself.
void expect_mask_is_exact(Matcher& matcher, const TokenTrie& trie) {
  const std::vector<uint32_t> mask(matcher.mask().begin(), matcher.mask().end());
  for (int32_t token = 0; token < trie.vocabulary(); ++token) {
    const bool fits = matcher.accept(token);
    if (fits) matcher.rollback(1);
    ASSERT_EQ(allows(mask, token), fits) << "token " << token << " \"" << trie.bytes(token) << "\"";
  }
}

TEST(Mask, AllowsExactlyTheTokensThatFit) {
  for (const std::string& schema : kSchemas) {
    SCOPED_TRACE(schema);
    Grammar grammar = make_grammar({.kind = SourceKind::json_schema, .text = schema, .choices = {}}, kTokens);
    std::mt19937 random(1);
    for (int text = 0; text < 20; ++text) {
      Matcher matcher(grammar);
      for (int step = 0; step < 40; ++step) {
        expect_mask_is_exact(matcher, grammar.trie());
        std::vector<int32_t> fit;
        for (int32_t token = 0; token < grammar.trie().vocabulary(); ++token) {
          if (allows(matcher.mask(), token)) fit.push_back(token);
        }
        ASSERT_FALSE(fit.empty());
        const int32_t drawn = fit[random() % fit.size()];
        if (drawn == grammar.trie().vocabulary() - 1) break;
        ASSERT_TRUE(matcher.accept(drawn));
      }
    }
  }
}

TEST(Mask, IsExactWhereTheStackIsFull) {
  const Source source{.kind = SourceKind::gbnf, .text = "root ::= \"(\" root \")\" root? | [a-z]*", .choices = {}};
  Grammar grammar = make_grammar(source, {"((", "(((", "a)", "))"}, {.stack_depth = 12});
  Matcher matcher(grammar);
  for (int depth = 0; depth < 40; ++depth) {
    expect_mask_is_exact(matcher, grammar.trie());
    if (!matcher.accept('(')) break;
  }
  EXPECT_LT(matcher.length(), 20U);
}

TEST(Mask, TokensBeyondTheGrammarAreNeverAllowed) {
  Grammar grammar = make_grammar({.kind = SourceKind::regex, .text = ".*", .choices = {}}, {"abc", "\xC3"});
  Matcher matcher(grammar);
  const auto end = grammar.trie().vocabulary() - 1;
  EXPECT_TRUE(allows(matcher.mask(), 256));
  EXPECT_TRUE(allows(matcher.mask(), end));
  EXPECT_FALSE(allows(matcher.mask(), 0xFF));
  EXPECT_FALSE(matcher.accept(-1));
  EXPECT_FALSE(matcher.accept(end + 1));
  ASSERT_TRUE(matcher.accept(257));  // half a character
  EXPECT_FALSE(allows(matcher.mask(), end));
  EXPECT_TRUE(allows(matcher.mask(), 0xBC));
}

TEST(Mask, RollbackIsAsIfNothingHadBeen) {
  Grammar grammar = make_grammar({.kind = SourceKind::json_schema, .text = kSchemas[1], .choices = {}}, kTokens);
  Matcher matcher(grammar);
  const std::vector<uint32_t> first(matcher.mask().begin(), matcher.mask().end());
  for (const char c : std::string("{\"name\"")) ASSERT_TRUE(matcher.accept(c));
  const std::vector<uint32_t> later(matcher.mask().begin(), matcher.mask().end());
  for (const char c : std::string(": \"x\"}")) ASSERT_TRUE(matcher.accept(c));
  EXPECT_TRUE(matcher.may_end());
  matcher.rollback(6);
  EXPECT_EQ(matcher.length(), 7U);
  EXPECT_TRUE(std::ranges::equal(matcher.mask(), later));
  matcher.rollback(100);
  EXPECT_TRUE(std::ranges::equal(matcher.mask(), first));
}

TEST(Mask, ForcedTextIsFoundAsFarAsThereIsNoChoice) {
  Grammar grammar = make_grammar({.kind = SourceKind::regex, .text = "hello (world|moon)!", .choices = {}}, {"hello"});
  Matcher matcher(grammar);
  EXPECT_EQ(matcher.forced_bytes(), "hello ");
  EXPECT_EQ(matcher.forced_bytes(3), "hel");
  EXPECT_EQ(matcher.forced_token(), std::nullopt);  // "h" and "hello" both begin it
  ASSERT_TRUE(matcher.accept(256));
  EXPECT_EQ(matcher.forced_token(), ' ');
  ASSERT_TRUE(matcher.accept(' '));
  EXPECT_EQ(matcher.forced_bytes(), "");
  ASSERT_TRUE(matcher.accept('m'));
  EXPECT_EQ(matcher.forced_bytes(), "oon!");
}

TEST(Mask, ForcedTokensAreTheLongestUpToWhereOneMayGoBeyondWhatIsForced) {
  const auto guess = [](const char* pattern, const std::vector<std::string>& tokens, size_t most = 8) {
    Grammar grammar = make_grammar({.kind = SourceKind::regex, .text = pattern, .choices = {}}, tokens);
    Matcher matcher(grammar);
    std::vector<int32_t> out(most);
    out.resize(static_cast<size_t>(matcher.guess_forced(out)));
    return out;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(guess("hello (world|moon)!", {"hello", "hel"}), (Ids{256, ' '}));
  EXPECT_EQ(guess("hello (world|moon)!", {"hello", "hel"}, 1), (Ids{256}));
  // The space may be the beginning of a longer token, or of none that fits.
  EXPECT_EQ(guess("hello (world|moon)!", {"hello", " mo"}), (Ids{256}));
  EXPECT_EQ(guess("hello (world|moon)!", {"hello", " so"}), (Ids{256, ' '}));
  EXPECT_EQ(guess("hello (world|moon)!", {"hello w"}), (Ids{}));
  EXPECT_EQ(guess("[ab]c", {}), (Ids{}));
  EXPECT_EQ(guess("(abc)?", {}), (Ids{}));  // it may end
  EXPECT_EQ(guess("ab(cd)?", {}), (Ids{'a', 'b'}));
}

TEST(Mask, ATextMayChangeInTheMiddle) {
  Grammar grammar = make_grammar({.kind = SourceKind::regex, .text = "a(bc|de)f|xyz", .choices = {}});
  Matcher matcher(grammar);
  const auto mask_of = [&](const std::vector<int32_t>& text) {
    matcher.set_text(text);
    return std::vector<uint32_t>(matcher.mask().begin(), matcher.mask().end());
  };
  EXPECT_TRUE(allows(mask_of({'a', 'b'}), 'c'));
  EXPECT_TRUE(allows(mask_of({'a', 'd'}), 'e'));
  EXPECT_FALSE(allows(mask_of({'a', 'd'}), 'c'));
  EXPECT_TRUE(allows(mask_of({'x', 'y'}), 'z'));
  EXPECT_TRUE(allows(mask_of({'a'}), 'b'));
}

TEST(Mask, WhatIsForgottenComesBackTheSame) {
  const Source source{.kind = SourceKind::json_schema, .text = kSchemas[0], .choices = {}};
  Grammar large = make_grammar(source, kTokens);
  Grammar small = make_grammar(source, kTokens, {.cache_bytes = 200'000});
  Matcher a(large);
  Matcher b(small);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "{\"k" + std::to_string(i) + "\":[";
  for (const char c : text) {
    ASSERT_TRUE(a.accept(static_cast<uint8_t>(c)));
    ASSERT_TRUE(b.accept(static_cast<uint8_t>(c)));
    ASSERT_TRUE(std::ranges::equal(a.mask(), b.mask()));
  }
}

TEST(Mask, ChoicesAreWords) {
  Grammar grammar = make_grammar({.kind = SourceKind::choice, .text = "", .choices = {"yes", "no", "yesterday"}});
  EXPECT_TRUE(takes(grammar, "yes"));
  EXPECT_TRUE(takes(grammar, "yesterday"));
  EXPECT_FALSE(takes(grammar, "yester"));
  EXPECT_THROW(make_grammar({.kind = SourceKind::choice, .text = "", .choices = {}}), Error);
}

}  // namespace
}  // namespace inferno::grammar
