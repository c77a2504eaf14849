// WordPiece and Unigram: tokenizers that change a text before they cut it.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
namespace {

using TokenIds = std::vector<int32_t>;

Vocabulary words(const std::vector<std::string>& tokens) {
  std::vector<std::string> all = {"[UNK]", "[CLS]", "[SEP]"};
  all.insert(all.end(), tokens.begin(), tokens.end());
  Vocabulary vocabulary;
  vocabulary.model = "bert";
  vocabulary.types.assign(all.size(), TokenType::normal);
  std::fill_n(vocabulary.types.begin(), 3, TokenType::control);
  vocabulary.tokens = StringList(all);
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.lowercase = vocabulary.strip_accents = true;
  return vocabulary;
}

Vocabulary scored_pieces(const std::vector<std::pair<std::string, float>>& pieces) {
  std::vector<std::string> all = {"<unk>"};
  Vocabulary vocabulary;
  vocabulary.model = "t5";
  vocabulary.types = {TokenType::unknown};
  vocabulary.scores = {0};
  for (const auto& [text, score] : pieces) {
    all.push_back(text);
    vocabulary.types.push_back(TokenType::normal);
    vocabulary.scores.push_back(score);
  }
  vocabulary.tokens = StringList(all);
  vocabulary.unknown = 0;
  vocabulary.add_space_prefix = vocabulary.remove_extra_spaces = true;
  return vocabulary;
}

std::string any_bytes(std::mt19937& random, size_t count) {
  std::string bytes;
  while (bytes.size() < count) bytes.push_back(static_cast<char>(random()));
  return bytes;
}

TEST(WordPiece, TakesTheLongestPiecesOfEachWordAndMarksWhereWordsBegin) {
  const auto t = Tokenizer::create(words({"▁un", "▁unable", "able", "a", "▁a", "ble", "▁,"}));
  EXPECT_EQ(t->encode("unable una, a"), (TokenIds{4, 3, 6, 9, 7}));
  EXPECT_EQ(t->decode(TokenIds{4, 3, 6}), " unable una");
}

TEST(WordPiece, CleansLowersAndStripsAsTheVocabularySays) {
  Vocabulary vocabulary = words({"▁resume", "▁Resume", "▁résumé"});
  const auto plain = Tokenizer::create(vocabulary);
  EXPECT_EQ(plain->encode("R\u00C9sum\u00E9"), TokenIds{3});
  EXPECT_EQ(plain->encode("R\u00AD\x01\u200BE\xFFsum\u0301e\uFFFD"), TokenIds{3});  // soft hyphen, control, not UTF-8
  vocabulary.lowercase = vocabulary.strip_accents = false;
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode("Resume"), TokenIds{4});
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode("resume r\u00E9sum\u00E9"), (TokenIds{3, 5}));
}

TEST(WordPiece, PunctuationAndIdeographsAreWordsOfTheirOwn) {
  const auto t = Tokenizer::create(words({"▁a", "▁.", "▁\u4E2D", "▁\u2014", "▁$"}));
  EXPECT_EQ(t->encode("a.a$\u4E2Da\u2014\u3000a"), (TokenIds{3, 4, 3, 7, 5, 3, 6, 3}));
}

TEST(WordPiece, WordsThatCannotBeCutOrAreTooLongAreUnknown) {
  const auto t = Tokenizer::create(words({"▁a", "a", "▁b"}));
  EXPECT_EQ(t->encode("b ax b"), (TokenIds{5, 0, 5}));
  EXPECT_EQ(t->encode(std::string(100, 'a')).size(), 100U);
  EXPECT_EQ(t->encode(std::string(101, 'a')), TokenIds{0});
  Vocabulary without = words({"▁a"});
  without.unknown.reset();
  EXPECT_THROW((void)Tokenizer::create(without)->encode("x"), Error);
}

TEST(WordPiece, SpecialTokensAreRecognisedUnlessTheyArePlainText) {
  const auto t = Tokenizer::create(words({"▁a", "▁[", "▁]", "▁sep"}));
  EXPECT_EQ(t->encode("a[SEP]a", {.add_bos = true, .add_eos = true}), (TokenIds{1, 3, 2, 3, 2}));
  EXPECT_EQ(t->encode("[SEP]", {.parse_special = false}), (TokenIds{4, 6, 5}));
}

TEST(Unigram, TakesTheLikeliestWayAndTheFirstOfEquals) {
  const auto t =
      Tokenizer::create(scored_pieces({{"▁", -1}, {"a", -2}, {"b", -2}, {"ab", -3}, {"▁a", -1.5F}, {"c", -9}}));
  EXPECT_EQ(t->encode("ab"), (TokenIds{5, 3}));  // -3.5 beats -4
  EXPECT_EQ(t->encode("  ab   b "), (TokenIds{5, 3, 1, 3}));
  EXPECT_EQ(t->decode(TokenIds{5, 3}), " ab");
}

TEST(Unigram, RunsThatNoTokenCoversAreOneUnknownTokenOrTheirBytes) {
  const auto t = Tokenizer::create(scored_pieces({{"▁", -1}, {"a", -2}}));
  EXPECT_EQ(t->encode("axyza\xFF"), (TokenIds{1, 2, 0, 2, 0}));
  Vocabulary with_bytes = scored_pieces({{"▁", -1}});
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    with_bytes.tokens.append(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    with_bytes.types.push_back(TokenType::byte);
    with_bytes.scores.push_back(0);
  }
  EXPECT_EQ(Tokenizer::create(with_bytes)->encode("\u00E9"), (TokenIds{1, 2 + 0xC3, 2 + 0xA9}));
}

TEST(Unigram, HostileVocabulariesAreOneLine) {
  Vocabulary without_scores = scored_pieces({{"a", -1}});
  without_scores.scores.clear();
  EXPECT_THROW((void)Tokenizer::create(without_scores), Error);
  EXPECT_THROW((void)Tokenizer::create(scored_pieces({{std::string(2000, 'a'), -1}})), Error);
  for (const std::string& map : {std::string("abc"), std::string("\xFF\xFF\xFF\xFF\0", 5),
                                 std::string("\4\0\0\0\0\0\0\0x", 9), std::string("\3\0\0\0\0\0\0\0", 8)}) {
    Vocabulary damaged = scored_pieces({{"a", -1}});
    damaged.charsmap = map;
    EXPECT_THROW((void)Tokenizer::create(damaged), Error);
  }
}

TEST(Unigram, RandomMapsAndTextsStayInsideTheirMemory) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string map = any_bytes(random, 4 + 4 * (random() % 64) + 20);
    map[0] = static_cast<char>((map.size() - 4 - random() % 20) / 4 * 4);
    map[1] = map[2] = map[3] = 0;
    map.back() = 0;
    Vocabulary vocabulary = scored_pieces({{"a", -1}, {"\xC3", -2}, {"\xA9 a", -3}});
    vocabulary.charsmap = map;
    const auto t = Tokenizer::create(vocabulary);
    const TokenIds ids = t->encode(any_bytes(random, 200));
    (void)t->decode(ids);
  }
}

TEST(Unigram, LongRunsTakeTimeInProportion) {
  const auto t = Tokenizer::create(scored_pieces({{"a", -1}, {std::string(1024, 'a'), -2}, {"aa", -1.5F}}));
  EXPECT_GT(t->encode(std::string(1 << 14, 'a')).size(), 10U);
  EXPECT_EQ(t->encode(std::string(1 << 20, ' ')), TokenIds{});
}

}  // namespace
}  // namespace inferno
