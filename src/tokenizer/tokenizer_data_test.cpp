// Against reference tokenizers: vocabularies of our own with each pre-tokenizer (tests/data), and the real vocabularies
// of INFERNO_TEST_DATA, which cannot be shipped.
#include <gtest/gtest.h>

#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "support/test_data.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
namespace {

using nlohmann::json;

using testing::find_data;

bool is_here(const std::string& name) {
  return !find_data(name).empty();
}

std::unique_ptr<const Tokenizer> load(const std::string& name) {
  return Tokenizer::load(GgufFile::open(find_data(name).at(0)));
}

std::vector<json> read_lines(const std::string& name) {
  std::ifstream file(find_data(name).at(0));
  std::vector<json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(json::parse(line));
  EXPECT_FALSE(rows.empty()) << name;
  return rows;
}

// A pre-tokenizer, and the real vocabularies that use it. Our own vocabulary with it is books-NAME.
struct Kind {
  std::string name;
  std::vector<std::string> real;
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

std::vector<std::string> vocabularies(const Kind& kind) {
  std::vector<std::string> names = {"books-" + kind.name};
  for (const std::string& name : kind.real) {
    if (is_here("vocab/" + name + ".gguf")) names.push_back(name);
  }
  return names;
}

class TokenizerData : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(PreTokenizers, TokenizerData,
                         ::testing::Values(Kind{"gpt2", {"gpt2"}}, Kind{"llama3", {"llama3"}},
                                           Kind{"qwen2", {"qwen2_5", "qwen3"}}, Kind{"smollm", {}}),
                         [](const auto& info) { return info.param.name; });

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string out;
  for (const int32_t id : ids) decoder.push(id, out);
  decoder.finish(out);
  return out;
}

TEST_P(TokenizerData, StringsEncodeExactlyAndDecodeBack) {
  for (const std::string& name : vocabularies(GetParam())) {
    SCOPED_TRACE(name);
    const auto tokenizer = load("vocab/" + name + ".gguf");
    for (const json& row : read_lines("tokens/" + name + ".jsonl")) {
      const auto text = row["text"].get<std::string>();
      const auto ids = row["ids"].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer->encode(text), ids) << row["text"];
      EXPECT_EQ(tokenizer->encode(text, {.parse_special = false}), row["ids_plain"].get<std::vector<int32_t>>())
          << row["text"];
      if (row["decoded_ok"].get<bool>()) {
        EXPECT_EQ(tokenizer->decode(ids), text);
        EXPECT_EQ(stream(*tokenizer, ids), text);
      }
    }
  }
}

TEST_P(TokenizerData, IdsDecodeToBytesPiecesAndStreamedText) {
  for (const std::string& name : vocabularies(GetParam())) {
    if (!is_here("decode/" + name + ".jsonl")) continue;
    SCOPED_TRACE(name);
    const auto tokenizer = load("vocab/" + name + ".gguf");
    for (const json& row : read_lines("decode/" + name + ".jsonl")) {
      const auto ids = row["ids"].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer->decode(ids), from_hex(row["bytes_hex"].get<std::string>())) << row["ids"];
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(tokenizer->piece(ids[i]), from_hex(row["pieces_hex"][i].get<std::string>())) << ids[i];
      }
      EXPECT_EQ(stream(*tokenizer, ids), row["hf_decode"].get<std::string>()) << row["ids"];
    }
  }
}

TEST(SentencePieceData, StringsEncodeExactly) {
  const auto check = [](const std::string& vocabulary, const std::string& strings) {
    const auto tokenizer = load(vocabulary);
    for (const json& row : read_lines(strings)) {
      const auto text = row["text"].get<std::string>();
      const auto ids = row["ids"].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer->encode(text, {.parse_special = false}), ids) << row["text"];
      EXPECT_EQ(tokenizer->decode(ids), text.empty() ? "" : " " + text);
    }
  };
  check("vocab/books-spm.gguf", "tokens/books-spm.jsonl");
  const std::string stories = "models/stories260K/";
  if (is_here(stories)) check(stories + "stories260K-F32.gguf", stories + "spm512_tokens.jsonl");
}

TEST(CharacterBpeData, StringsEncodeExactlyAndDecodeBack) {
  const auto tokenizer = load("vocab/books-gemma4.gguf");
  EXPECT_TRUE(tokenizer->wants_bos());
  EXPECT_TRUE(tokenizer->is_end_token(tokenizer->find("<turn|>").value()));
  for (const json& row : read_lines("tokens/books-gemma4.jsonl")) {
    const auto text = row["text"].get<std::string>();
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->encode(text), ids) << row["text"];
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = false}), row["ids_plain"].get<std::vector<int32_t>>())
        << row["text"];
    const bool has_marks = text.find("\xE2\x96\x81") != std::string::npos;  // which decode to spaces
    if (!has_marks) {
      EXPECT_EQ(tokenizer->decode(ids), text) << row["text"];
    }
  }
}

TEST(CharacterBpeData, BytesThatAreNoTextEncodeToTheirTokensAndBack) {
  const auto tokenizer = load("vocab/books-gemma4.gguf");
  for (const std::string& text :
       {std::string("\xFF"), std::string("a\xC3 b"), std::string("\xE2\x96"), std::string(1, '\0')}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

// Both change texts before they cut them: nothing is decoded back.
TEST(NormalizingTokenizers, StringsEncodeExactly) {
  for (const std::string name : {"books-unigram", "books-wordpiece"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = load("vocab/" + name + ".gguf");
    EXPECT_TRUE(tokenizer->wants_eos());
    for (const json& row : read_lines("tokens/" + name + ".jsonl")) {
      EXPECT_EQ(tokenizer->encode(row["text"].get<std::string>()), row["ids"].get<std::vector<int32_t>>())
          << row["text"];
    }
  }
}

TEST(RealVocabularies, MiniVocabularyStringsEncodeExactly) {
  INFERNO_REQUIRE_TEST_DATA("models/tiny-qwen3-mini/mini_tokens.jsonl");
  const auto tokenizer = load("models/tiny-qwen3-mini/tiny-qwen3-mini-F32.gguf");
  for (const json& row : read_lines("models/tiny-qwen3-mini/mini_tokens.jsonl")) {
    EXPECT_EQ(tokenizer->encode(row["text"].get<std::string>()), row["ids"].get<std::vector<int32_t>>()) << row["text"];
  }
}

TEST(RealVocabularies, RealModelsStopAtAllTheirEndTokens) {
  INFERNO_REQUIRE_TEST_DATA("vocab/llama3.gguf");
  const auto qwen3 = load("vocab/qwen3.gguf");
  EXPECT_EQ(std::vector(qwen3->end_tokens().begin(), qwen3->end_tokens().end()), (std::vector{151643, 151645}));
  EXPECT_FALSE(qwen3->wants_bos());
  const auto llama3 = load("vocab/llama3.gguf");
  EXPECT_TRUE(llama3->is_end_token(128001));
  EXPECT_TRUE(llama3->is_end_token(128009));
  EXPECT_TRUE(llama3->wants_bos());
  EXPECT_EQ(llama3->encode("a", {.add_bos = true}), (std::vector{128000, 64}));
  const auto stories = load("models/stories260K/stories260K-F32.gguf");
  EXPECT_TRUE(stories->is_end_token(2));
}

}  // namespace
}  // namespace inferno
