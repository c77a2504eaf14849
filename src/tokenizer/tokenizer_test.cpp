#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/normalize.h"
#include "tokenizer/test_vocabulary.h"

namespace inferno {
namespace {

using Ids = std::vector<int32_t>;

const std::vector<std::string> kMerges = {"a b", "b c", "ab c", "c c", "a a", "aa aa", "Ġ a", "Ġa b", "Ġ Ġ", "ĠĠ ĠĠ"};

std::string random_bytes(std::mt19937& random, size_t length) {
  std::string bytes;
  while (bytes.size() < length) bytes.push_back(static_cast<char>(random()));
  return bytes;
}

// Characters from all over Unicode, with enough ASCII to make words and spaces.
std::string random_text(std::mt19937& random, size_t characters) {
  constexpr uint32_t kLimits[] = {0x80, 0x80, 0x250, 0x400, 0x3000, 0x10000, 0x110000};
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    const auto c = static_cast<uint32_t>(random()) % kLimits[random() % std::size(kLimits)];
    if (c >= 0xD800 && c < 0xE000) continue;
    const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0 | c >> 6);
    } else if (c < 0x10000) {
      put(0xE0 | c >> 12);
      put(0x80 | (c >> 6 & 0x3F));
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
      put(0x80 | (c >> 6 & 0x3F));
    }
    if (c >= 0x80) put(0x80 | (c & 0x3F));
  }
  return text;
}

// The definition, without any index: of all neighbours that may merge the best rank, the leftmost of equals.
Ids merge_by_hand(const std::string& word, const std::vector<std::string>& merges) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.push_back(byte_letter(static_cast<unsigned char>(c)));
  std::map<std::string, int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) ids[byte_letter(byte)] = byte;
  std::map<std::string, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) {
    ranks[merges[i]] = i;
    std::string merged = merges[i];
    merged.erase(merged.find(' '), 1);
    ids.emplace(merged, static_cast<int32_t>(256 + i));
  }
  while (true) {
    size_t best = symbols.size();
    size_t best_rank = merges.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find(symbols[i] + " " + symbols[i + 1]);
      if (found == ranks.end() || found->second >= best_rank) continue;
      best = i;
      best_rank = found->second;
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Ids result;
  for (const std::string& symbol : symbols) result.push_back(ids.at(symbol));
  return result;
}

TEST(ByteBpe, MergesByRankThenFromTheLeft) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary("gpt-2", kMerges));
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{258}));
  EXPECT_EQ(tokenizer->encode("bcc"), (Ids{257, 'c'}));
  EXPECT_EQ(tokenizer->encode("aaa"), (Ids{260, 'a'}));
  EXPECT_EQ(tokenizer->encode("ab ab"), (Ids{256, 32, 256}));
}

TEST(ByteBpe, AgreesWithTheDefinitionOnRandomWords) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary("gpt-2", kMerges));
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string word;
    const size_t length = random() % 40;
    while (word.size() < length) word.push_back("abc"[random() % 3]);
    EXPECT_EQ(tokenizer->encode(word), merge_by_hand(word, kMerges)) << word;
  }
}

TEST(ByteBpe, WholeWordsWinOverMergesOnlyForLlama3) {
  // "xyz" is a token that no merge builds.
  const auto make = [](const char* pre) {
    Vocabulary vocabulary = byte_vocabulary(pre, {"x y", "xy z"});
    vocabulary.merges = StringList(std::vector<std::string>{"x y"});
    return Tokenizer::create(std::move(vocabulary));
  };
  EXPECT_EQ(make("llama-bpe")->encode("xyz"), (Ids{257}));
  EXPECT_EQ(make("qwen2")->encode("xyz"), (Ids{256, 'z'}));
}

TEST(ByteBpe, OnlyQwen2Normalizes) {
  EXPECT_EQ(Tokenizer::create(byte_vocabulary("qwen2", {}))->encode("e\xCC\x81"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(Tokenizer::create(byte_vocabulary("llama-bpe", {}))->encode("e\xCC\x81"), (Ids{'e', 0xCC, 0x81}));
}

TEST(ByteBpe, AnyBytesComeBack) {
  std::mt19937 random(2);
  for (const char* pre : {"gpt-2", "llama-bpe", "smollm", "qwen2"}) {
    const auto tokenizer = Tokenizer::create(byte_vocabulary(pre, kMerges, {"<|end|>"}));
    for (int round = 0; round < 400; ++round) {
      const std::string bytes =
          round % 2 == 0 ? random_bytes(random, random() % 200) : random_text(random, random() % 80);
      const Ids ids = tokenizer->encode(bytes);
      if (std::string_view(pre) != "qwen2") {
        EXPECT_EQ(tokenizer->decode(ids), bytes) << pre;
      } else if (is_valid_utf8(bytes)) {
        EXPECT_EQ(tokenizer->decode(ids), normalize_nfc(bytes)) << pre;
      }
    }
  }
}

TEST(ByteBpe, BytesThatAreNotUtf8AreWordsOfTheirOwn) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary("gpt-2", {"Ã ĥ", "a b"}));
  EXPECT_EQ(tokenizer->encode("\xC3\xFF"
                              "ab\x80"
                              "ab"),
            (Ids{0xC3, 0xFF, 257, 0x80, 257}));
  EXPECT_EQ(tokenizer->encode("a\xFF"
                              "b"),
            (Ids{'a', 0xFF, 'b'}));
}

TEST(ByteBpe, HugeInputsTakeNoQuadraticTime) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary("qwen2", kMerges));
  EXPECT_EQ(tokenizer->encode(std::string(1'000'000, ' ')).size(), 250'000U);
  EXPECT_EQ(tokenizer->encode(std::string(100'000, 'a')).size(), 25'000U);
  std::string text;
  while (text.size() < 1'000'000) text += "The abc said: \"aab, bcc!\"\n  and 1234 more.\r\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(ByteBpe, BytesTheVocabularyLacksAreAnError) {
  Vocabulary vocabulary = byte_vocabulary("gpt-2", {});
  vocabulary.tokens = StringList(std::vector<std::string>{"a", "<|endoftext|>"});
  vocabulary.types = {TokenType::normal, TokenType::control};
  vocabulary.unknown = 1;
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode("aa"), (Ids{0, 0}));
  EXPECT_THROW((void)Tokenizer::create(vocabulary)->encode("aba"), Error);
}

TEST(AddedTokens, TheLeftmostAndThenTheLongestIsTaken) {
  const auto tokenizer =
      Tokenizer::create(byte_vocabulary("gpt-2", {"a b"}, {"<|a|>", "<|a|><|b|>", "|>", "<|b|>", "", "<|a|>"}));
  EXPECT_EQ(tokenizer->encode("ab<|a|>ab"), (Ids{256, 257, 256}));
  EXPECT_EQ(tokenizer->encode("<|a|><|b|>"), (Ids{258}));
  EXPECT_EQ(tokenizer->encode("<|a|><|b"), (Ids{257, '<', '|', 'b'}));
  EXPECT_EQ(tokenizer->encode("<|c|>"), (Ids{'<', '|', 'c', 259}));
  EXPECT_EQ(tokenizer->encode("<|a|>", {.parse_special = false}), (Ids{'<', '|', 'a', '|', '>'}));
}

// Few letters, so that tokens begin like others, end inside others and contain others.
TEST(AddedTokens, AreFoundAsTheDefinitionSays) {
  std::mt19937 random(7);
  const auto word = [&](size_t longest) {
    std::string text;
    for (size_t n = 1 + random() % longest; n > 0; --n) text.push_back(static_cast<char>('a' + random() % 3));
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> control;
    for (size_t n = random() % 40; n > 0; --n) control.push_back(word(12));
    const auto tokenizer = Tokenizer::create(byte_vocabulary("gpt-2", {}, control));
    const std::string text = word(200);
    Ids expected;
    for (size_t at = 0; at < text.size();) {
      size_t best = control.size();
      for (size_t i = 0; i < control.size(); ++i) {
        const bool fits = text.compare(at, control[i].size(), control[i]) == 0;
        if (fits && (best == control.size() || control[i].size() > control[best].size())) best = i;
      }
      expected.push_back(best == control.size() ? text[at] : 256 + static_cast<int32_t>(best));
      at += best == control.size() ? 1 : control[best].size();
    }
    EXPECT_EQ(tokenizer->encode(text), expected) << text;
  }
}

// Every place of the text begins like hundreds of tokens for a thousand bytes, and is none of them.
TEST(AddedTokens, HostileOnesCostLittlePerByte) {
  std::vector<std::string> control;
  for (size_t n = 0; n < 500; ++n) control.push_back(std::string(1023 - n, 'a') + "b");
  control.push_back("ac");
  for (size_t n = 1; n < 500; ++n) control.push_back("ac" + std::string(n, 'd'));
  const auto tokenizer = Tokenizer::create(byte_vocabulary("gpt-2", {}, control));
  std::string text(200'000, 'a');
  for (size_t i = 0; i < 50'000; ++i) text += "ae";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer->encode(text).size(), text.size());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(AddedTokens, AreDecodedAsTheirText) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary("gpt-2", {}, {"<|\xC4\xA0 \xC3\xA9|>"}));
  const Ids ids = tokenizer->encode("a<|\xC4\xA0 \xC3\xA9|>");
  EXPECT_EQ(ids, (Ids{'a', 256}));
  EXPECT_EQ(tokenizer->decode(ids), "a<|\xC4\xA0 \xC3\xA9|>");
}

TEST(AddedTokens, BosAndEosAreAddedOnRequest) {
  Vocabulary vocabulary = byte_vocabulary("gpt-2", {}, {"<s>", "</s>"});
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode("a", {.add_bos = true, .add_eos = true}), (Ids{'a'}));
  vocabulary.bos = 256;
  vocabulary.eos = 257;
  const auto tokenizer = Tokenizer::create(vocabulary);
  EXPECT_EQ(tokenizer->encode("a", {.add_bos = true, .add_eos = true}), (Ids{256, 'a', 257}));
  EXPECT_EQ(tokenizer->encode("", {.add_bos = true}), (Ids{256}));
  EXPECT_FALSE(tokenizer->wants_bos());
}

TEST(AddedTokens, EndTokensAreThoseNamedAndThoseKnown) {
  Vocabulary vocabulary = byte_vocabulary("gpt-2", {}, {"<stop>", "<|im_end|>", "<|im_start|>", "<|eot_id|>"});
  vocabulary.eos = 256;
  const auto tokenizer = Tokenizer::create(vocabulary);
  EXPECT_EQ(Ids(tokenizer->end_tokens().begin(), tokenizer->end_tokens().end()), (Ids{256, 257, 259}));
  EXPECT_TRUE(tokenizer->is_end_token(257));
  EXPECT_FALSE(tokenizer->is_end_token(258));
  EXPECT_EQ(tokenizer->find("<|im_start|>"), 258);
  EXPECT_EQ(tokenizer->find("<|im"), std::nullopt);
}

TEST(AddedTokens, AMessagesEndIsNoEndWhereAnswersHaveSeveralMessages) {
  const auto ends = [](std::vector<std::string> added) {
    const auto tokenizer = Tokenizer::create(byte_vocabulary("gpt-2", {}, std::move(added)));
    return Ids(tokenizer->end_tokens().begin(), tokenizer->end_tokens().end());
  };
  EXPECT_EQ(ends({"<|end|>", "<|user|>"}), (Ids{256}));
  EXPECT_EQ(ends({"<|end|>", "<|return|>", "<|call|>"}), (Ids{257, 258})) << "gpt-oss";
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreErrors) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary("gpt-2", {}));
  EXPECT_THROW((void)tokenizer->piece(-1), Error);
  EXPECT_THROW((void)tokenizer->piece(256), Error);
  EXPECT_THROW((void)tokenizer->decode(Ids{1, std::numeric_limits<int32_t>::max()}), Error);
  EXPECT_THROW((void)tokenizer->type(256), Error);
  EXPECT_FALSE(tokenizer->is_end_token(-1));
}

TEST(Tokenizer, ThreadsMayShareOne) {
  const auto tokenizer = Tokenizer::create(byte_vocabulary("qwen2", kMerges));
  std::mt19937 random(3);
  const std::string text = random_text(random, 2000);
  const Ids expected = tokenizer->encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  threads.reserve(results.size());
  for (Ids& result : results) threads.emplace_back([&] { result = tokenizer->encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

const std::vector<std::pair<std::string, float>> kScored = {{"▁", -10}, {"a", -11}, {"b", -12},  {"▁a", -1},
                                                            {"ab", -2}, {"bb", -2}, {"▁ab", -3}, {"é", -5},
                                                            {"▁▁", -4}, {"abb", -2}};

TEST(SentencePieceBpe, MergesByScoreThenFromTheLeft) {
  const auto tokenizer = Tokenizer::create(scored_vocabulary(kScored));
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{265}));
  EXPECT_EQ(tokenizer->encode("bab"), (Ids{259, 261, 263}));
  EXPECT_EQ(tokenizer->encode("bbb"), (Ids{259, 264, 261}));
  EXPECT_EQ(tokenizer->encode("babb"), (Ids{259, 261, 268}));
  EXPECT_EQ(tokenizer->encode("  a"), (Ids{267, 262}));
}

TEST(SentencePieceBpe, AgreesWithTheDefinitionOnRandomWords) {
  Vocabulary vocabulary = scored_vocabulary(
      {{"a", -9}, {"b", -9}, {"ab", -2}, {"bb", -1}, {"aa", -1.5F}, {"ba", -2}, {"abb", -3}, {"bbbb", -1}});
  vocabulary.add_space_prefix = false;
  const auto tokenizer = Tokenizer::create(vocabulary);
  std::mt19937 random(6);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> symbols;
    const size_t length = random() % 30;
    while (symbols.size() < length) symbols.emplace_back(1, "ab"[random() % 2]);
    std::string word;
    for (const std::string& symbol : symbols) word += symbol;
    // Of all neighbours that form a token the best score, the leftmost of equals.
    while (true) {
      size_t best = symbols.size();
      float best_score = -std::numeric_limits<float>::infinity();
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const std::optional<int32_t> id = tokenizer->find(symbols[i] + symbols[i + 1]);
        if (!id || vocabulary.scores[static_cast<size_t>(*id)] <= best_score) continue;
        best = i;
        best_score = vocabulary.scores[static_cast<size_t>(*id)];
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    Ids expected;
    for (const std::string& symbol : symbols) expected.push_back(tokenizer->find(symbol).value_or(-1));
    EXPECT_EQ(tokenizer->encode(word), expected) << word;
  }
}

TEST(SentencePieceBpe, SpacePrefixIsAnOptionAndEmptyTextHasNone) {
  Vocabulary vocabulary = scored_vocabulary(kScored);
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode(""), (Ids{}));
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode("a</s>a"), (Ids{262, 2, 262}));
  vocabulary.add_space_prefix = false;
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode("a a"), (Ids{260, 262}));
}

TEST(SentencePieceBpe, UnknownCharactersFallBackToBytesThenToUnknown) {
  Vocabulary vocabulary = scored_vocabulary(kScored);
  vocabulary.add_space_prefix = false;
  const auto tokenizer = Tokenizer::create(vocabulary);
  EXPECT_EQ(tokenizer->encode("éä"), (Ids{266, 3 + 0xC3, 3 + 0xA4}));
  EXPECT_EQ(tokenizer->encode("a\xFF\xC3"), (Ids{260, 3 + 0xFF, 3 + 0xC3}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xFF\xC3 ä")), "a\xFF\xC3 ä");
  for (TokenType& type : vocabulary.types) {
    if (type == TokenType::byte) type = TokenType::unused;
  }
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode("aäb"), (Ids{260, 0, 261}));
  vocabulary.unknown.reset();
  EXPECT_THROW((void)Tokenizer::create(vocabulary)->encode("aäb"), Error) << "dropped silently";
}

TEST(SentencePieceBpe, NamesOfByteAndControlTokensInPlainTextAreText) {
  Vocabulary vocabulary = scored_vocabulary({{"<", -1}, {"s", -1}, {">", -1}, {"<s", -1}});
  vocabulary.add_space_prefix = false;
  const auto tokenizer = Tokenizer::create(vocabulary);
  EXPECT_EQ(tokenizer->encode("<s>", {.parse_special = false}), (Ids{262, 261}));
  EXPECT_EQ(tokenizer->encode("<s>"), (Ids{1}));
}

TEST(SentencePieceBpe, AnyBytesComeBackBehindTheSpacePrefix) {
  const auto tokenizer = Tokenizer::create(scored_vocabulary(kScored));
  std::mt19937 random(4);
  for (int round = 0; round < 400; ++round) {
    const std::string bytes = round % 2 == 0 ? random_bytes(random, 1 + random() % 200) : random_text(random, 80) + "a";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes, {.parse_special = false})), " " + bytes);
  }
}

TEST(SentencePieceBpe, HugeInputsTakeNoQuadraticTime) {
  const auto tokenizer = Tokenizer::create(scored_vocabulary(kScored));
  EXPECT_EQ(tokenizer->encode(std::string(1'000'001, ' ')).size(), 500'001U);
  EXPECT_EQ(tokenizer->encode(std::string(100'000, 'b')).size(), 50'001U);
}

}  // namespace
}  // namespace inferno
