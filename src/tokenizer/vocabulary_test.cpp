#include "file/vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "tokenizer/test_vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
namespace {

// Metadata of a small SentencePiece-style tokenizer; each test breaks one key of it.
using Metadata = std::map<std::string, MetadataValue>;

Metadata small_metadata() {
  Metadata metadata;
  const auto set = [&](const char* key, MetadataValue value) { metadata.insert_or_assign(key, std::move(value)); };
  set("tokenizer.ggml.model", MetadataValue("llama"));
  set("tokenizer.ggml.tokens",
      MetadataValue(MetadataArray{StringList(std::vector<std::string>{"<unk>", "a", "b", "ab"})}));
  set("tokenizer.ggml.scores", MetadataValue(MetadataArray{std::vector<float>{0, -1, -2, -3}}));
  set("tokenizer.ggml.token_type", MetadataValue(MetadataArray{std::vector<int32_t>{2, 1, 1, 1}}));
  set("tokenizer.ggml.unknown_token_id", MetadataValue(uint32_t{0}));
  return metadata;
}

Vocabulary load(const Metadata& metadata) {
  const std::string path = ::testing::TempDir() + "inferno_vocabulary_test_" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".gguf";
  GgufWriter writer(path);
  for (const auto& [key, value] : metadata) writer.set(key, value);
  writer.finish();
  Vocabulary vocabulary = GgufFile::open(path).vocabulary();
  std::filesystem::remove(path);
  return vocabulary;
}

// Loading fails with one line that names the key.
void expect_error(const Metadata& metadata, const std::string& key) {
  try {
    (void)load(metadata);
    ADD_FAILURE() << "no error about " << key;
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Vocabulary, LoadsWithTheDefaultsOfItsKind) {
  const Vocabulary vocabulary = load(small_metadata());
  EXPECT_EQ(vocabulary.size(), 4);
  EXPECT_EQ(vocabulary.unknown, 0);
  EXPECT_EQ(vocabulary.bos, std::nullopt);
  EXPECT_TRUE(vocabulary.add_bos);
  EXPECT_TRUE(vocabulary.add_space_prefix);
  EXPECT_FALSE(vocabulary.add_eos);
  EXPECT_FALSE(Tokenizer::create(vocabulary)->wants_bos());
}

TEST(Vocabulary, AnIdOfMinusOneMeansNone) {
  Metadata metadata = small_metadata();
  metadata.insert_or_assign("tokenizer.ggml.padding_token_id", MetadataValue(std::numeric_limits<uint32_t>::max()));
  metadata.insert_or_assign("tokenizer.ggml.eos_token_id", MetadataValue(int32_t{-1}));
  const Vocabulary vocabulary = load(metadata);
  EXPECT_EQ(vocabulary.padding, std::nullopt);
  EXPECT_EQ(vocabulary.eos, std::nullopt);
}

TEST(Vocabulary, WhatDoesNotFitTogetherIsAnErrorNamingTheKey) {
  const auto broken = [](const char* key, MetadataValue value) {
    Metadata metadata = small_metadata();
    metadata.insert_or_assign(key, std::move(value));
    expect_error(metadata, key);
  };
  broken("tokenizer.ggml.model", MetadataValue("bert\n"));
  broken("tokenizer.ggml.model", MetadataValue(uint32_t{1}));
  broken("tokenizer.ggml.tokens", MetadataValue(MetadataArray{StringList()}));
  broken("tokenizer.ggml.tokens", MetadataValue(MetadataArray{std::vector<int32_t>{1, 2, 3, 4}}));
  broken("tokenizer.ggml.scores", MetadataValue(MetadataArray{std::vector<float>{0, -1}}));
  broken("tokenizer.ggml.scores", MetadataValue(MetadataArray{std::vector<float>{0, NAN, 0, 0}}));
  broken("tokenizer.ggml.token_type", MetadataValue(MetadataArray{std::vector<int32_t>{2, 1, 1}}));
  broken("tokenizer.ggml.token_type", MetadataValue(MetadataArray{std::vector<int32_t>{2, 1, 1, 7}}));
  broken("tokenizer.ggml.token_type", MetadataValue(MetadataArray{std::vector<int32_t>{2, 1, 1, -1}}));
  broken("tokenizer.ggml.bos_token_id", MetadataValue(uint32_t{4}));
  broken("tokenizer.ggml.eos_token_id", MetadataValue(int64_t{-2}));
  broken("tokenizer.ggml.eot_token_id", MetadataValue(int64_t{1} << 40));
  broken("tokenizer.ggml.merges", MetadataValue(MetadataArray{StringList(std::vector<std::string>{"ab"})}));
  broken("tokenizer.ggml.merges", MetadataValue(MetadataArray{StringList(std::vector<std::string>{" b"})}));
  broken("tokenizer.ggml.merges", MetadataValue(MetadataArray{StringList(std::vector<std::string>{"a "})}));
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.scores"}) {
    Metadata metadata = small_metadata();
    metadata.erase(key);
    expect_error(metadata, key);
  }
}

TEST(Vocabulary, OddMergesAndTokensDoNoHarm) {
  // Unknown parts, an unknown result, the same pair twice, a result that is one of its parts' neighbours, bytes that
  // are not UTF-8, and characters outside the byte alphabet.
  Vocabulary vocabulary = byte_vocabulary("gpt-2", {"a b", "ab a", "b ab"});
  vocabulary.merges = StringList(
      std::vector<std::string>{"zz y", "c d", "a b", "a b", "ab a", "b ab", "\xFF a", "漢 字", "a  b", "a b c"});
  const auto tokenizer = Tokenizer::create(vocabulary);
  EXPECT_EQ(tokenizer->encode("aba"), (std::vector<int32_t>{257}));
  EXPECT_EQ(tokenizer->encode("cd"), (std::vector<int32_t>{'c', 'd'}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("zzy 漢字 abab\xFF"
                                                "a")),
            "zzy 漢字 abab\xFF"
            "a");

  // Empty and equal tokens: the lowest id stands for the text.
  vocabulary.tokens = StringList(std::vector<std::string>{"", "a", "a", "", "\xFF", "<x>", "<x>"});
  vocabulary.types = {TokenType::normal,  TokenType::normal,       TokenType::normal, TokenType::control,
                      TokenType::control, TokenType::user_defined, TokenType::control};
  EXPECT_EQ(Tokenizer::create(vocabulary)->encode("aa<x>\xFF"), (std::vector<int32_t>{1, 1, 5, 4}));
  EXPECT_EQ(Tokenizer::create(vocabulary)->piece(0), "");
}

TEST(Vocabulary, AnAddedTokenOfAbsurdLengthIsAnError) {
  EXPECT_THROW((void)Tokenizer::create(byte_vocabulary("gpt-2", {}, {std::string(1025, '<')})), Error);
}

TEST(Vocabulary, AddedTokensOfAbsurdLengthInAllAreAnError) {
  std::vector<std::string> control;
  for (int i = 0; i < 1100; ++i) control.push_back(std::to_string(i) + std::string(1000, '<'));
  EXPECT_THROW((void)Tokenizer::create(byte_vocabulary("gpt-2", {}, control)), Error);
}

}  // namespace
}  // namespace inferno
