// tokenizer.json becomes the vocabulary that a GGUF file of the model has.
#include "hf/tokenizer_json.h"

#include "base/error.h"
#include "file/vocabulary.h"
#include "hf/hf_folder.h"
#include "hf/test_folder.h"

namespace inferno::hf {
namespace {

class TokenizerJsonTest : public FolderTest {
 protected:
  std::string error_with(const Json& tokenizer) {
    write("tokenizer.json", tokenizer.dump());
    return error();
  }
};

TEST_F(TokenizerJsonTest, TokensHaveTheirPlacesAndTypes) {
  write_model("qwen3");
  const Vocabulary vocabulary = HfFolder::open(folder_).vocabulary();
  ASSERT_EQ(vocabulary.size(), 6);
  EXPECT_EQ(vocabulary.model, "gpt2");
  EXPECT_EQ(vocabulary.pre, "qwen2");
  EXPECT_EQ(vocabulary.tokens[2], "ab");
  EXPECT_EQ(vocabulary.tokens[4], "<end>");
  EXPECT_EQ(vocabulary.tokens[5], "[PAD5]");
  EXPECT_EQ(vocabulary.types[0], TokenType::normal);
  EXPECT_EQ(vocabulary.types[3], TokenType::user_defined);
  EXPECT_EQ(vocabulary.types[4], TokenType::control);
  EXPECT_EQ(vocabulary.types[5], TokenType::unused);
  EXPECT_FALSE(vocabulary.add_bos);
}

TEST_F(TokenizerJsonTest, MergesMayBeStringsOrPairs) {
  write_model("qwen3");
  const StringList expected = HfFolder::open(folder_).vocabulary().merges;
  ASSERT_EQ(expected.size(), 1U);
  EXPECT_EQ(expected[0], "a b");
  Json pairs = tiny_tokenizer();
  pairs["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  write("tokenizer.json", pairs.dump());
  EXPECT_EQ(HfFolder::open(folder_).vocabulary().merges, expected);
}

TEST_F(TokenizerJsonTest, SentencePieceMergesBecomeScores) {
  write_model("llama");
  Json tokenizer = tiny_tokenizer();
  tokenizer["normalizer"] = {{"type", "Sequence"},
                             {"normalizers", {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}}}}};
  tokenizer["pre_tokenizer"] = nullptr;
  tokenizer["model"] = {{"type", "BPE"},
                        {"byte_fallback", true},
                        {"unk_token", "<unk>"},
                        {"vocab", {{"<unk>", 0}, {"a", 1}, {"<0x41>", 2}, {"aa", 5}}},
                        {"merges", {"x y", "a a"}}};
  write("tokenizer.json", tokenizer.dump());
  const Vocabulary vocabulary = HfFolder::open(folder_).vocabulary();
  EXPECT_EQ(vocabulary.model, "llama");
  EXPECT_TRUE(vocabulary.add_space_prefix);
  EXPECT_EQ(vocabulary.scores.at(5), -1.0F);
  EXPECT_EQ(vocabulary.scores.at(1), -2.0F);
  EXPECT_EQ(vocabulary.types[0], TokenType::unknown);
  EXPECT_EQ(vocabulary.types[2], TokenType::byte);
}

TEST_F(TokenizerJsonTest, WordPieceMarksWhereWordsBegin) {
  write_model("qwen3");
  Json tokenizer = {{"added_tokens", {{{"id", 5}, {"content", "[SEP]"}, {"special", true}}}},
                    {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", true}, {"strip_accents", nullptr}}},
                    {"model", {{"type", "WordPiece"}, {"vocab", {{"a", 0}, {"##b", 1}, {"[unused1]", 2}}}}}};
  write("tokenizer.json", tokenizer.dump());
  write("tokenizer_config.json", R"({"sep_token": "[SEP]"})");
  const Vocabulary vocabulary = HfFolder::open(folder_).vocabulary();
  EXPECT_EQ(vocabulary.model, "bert");
  EXPECT_EQ(vocabulary.tokens[0], "\u2581a");
  EXPECT_EQ(vocabulary.tokens[1], "b");
  EXPECT_EQ(vocabulary.tokens[5], "[SEP]");
  EXPECT_EQ(vocabulary.types[5], TokenType::control);
  EXPECT_EQ(vocabulary.eos, 5);
  EXPECT_TRUE(vocabulary.lowercase && vocabulary.strip_accents);
  tokenizer["normalizer"]["lowercase"] = false;
  write("tokenizer.json", tokenizer.dump());
  EXPECT_FALSE(HfFolder::open(folder_).vocabulary().strip_accents);
  tokenizer["normalizer"] = {{"type", "NFC"}};
  EXPECT_NE(error_with(tokenizer).find("normalizer"), std::string::npos);
}

TEST_F(TokenizerJsonTest, TheTemplateSaysWhetherTextsBeginWithAToken) {
  write_model("qwen3");
  Json tokenizer = tiny_tokenizer();
  tokenizer["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<end>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}}}};
  write("tokenizer.json", tokenizer.dump());
  EXPECT_TRUE(HfFolder::open(folder_).vocabulary().add_bos);
  write("tokenizer_config.json", R"({"add_bos_token": false})");
  EXPECT_FALSE(HfFolder::open(folder_).vocabulary().add_bos);
}

TEST_F(TokenizerJsonTest, WhatDoesNotFitIsAnErrorOfOneLine) {
  write_model("qwen3");
  const auto expect = [&](const char* pointer, const Json& value, const std::string& needle) {
    Json tokenizer = tiny_tokenizer();
    tokenizer[Json::json_pointer(pointer)] = value;
    const std::string message = error_with(tokenizer);
    EXPECT_NE(message.find(needle), std::string::npos) << pointer << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  expect("/model/type", "Unigram", "Unigram");
  expect("/model/vocab/a", 6, "id 6");
  expect("/model/vocab/a", 1, "same id");
  expect("/model/vocab/a", -1, "vocab");
  expect("/model/vocab/a", uint64_t{1} << 40, "too many tokens");
  expect("/model/vocab", Json::array({1, 2}), "vocab");
  expect("/model/merges", Json::array({Json::array({"a", "b", "c"})}), "two parts");
  expect("/model/merges", Json::array({Json::array({"a"})}), "one part");
  expect("/model/merges", Json::array({Json::array({"a", "b c"})}), "space");
  expect("/model/merges", {{"a", "b c"}}, "merges");
  expect("/model/merges", Json::array({"ab"}), "one part");
  expect("/model/merges", Json::array({1}), "merges");
  expect("/added_tokens/0/id", 99, "id 99");
  expect("/added_tokens/0/content", "", "content");
  expect("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+", "pre-tokenizer");
  expect("/pre_tokenizer", {{"type", "Whitespace"}}, "pre-tokenizer");
}

}  // namespace
}  // namespace inferno::hf
