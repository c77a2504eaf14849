// Against reference tokenizers: real vocabularies, strings and ids from INFERNO_TEST_DATA.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "tokenizer/chat.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
namespace {

using nlohmann::json;

class TokenizerData : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("INFERNO_TEST_DATA");
    if (folder == nullptr) GTEST_SKIP() << "INFERNO_TEST_DATA is not set";
    folder_ = folder;
  }
  [[nodiscard]] std::unique_ptr<const Tokenizer> load(const std::string& path) const {
    return Tokenizer::load(GgufFile::open(folder_ + "/" + path));
  }
  [[nodiscard]] std::vector<json> read_lines(const std::string& path) const {
    std::ifstream file(folder_ + "/" + path);
    std::vector<json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(json::parse(line));
    EXPECT_FALSE(rows.empty()) << path;
    return rows;
  }

 private:
  std::string folder_;
};

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

class TokenStrings : public TokenizerData, public testing::WithParamInterface<const char*> {};

TEST_P(TokenStrings, EncodeExactlyAndDecodeBack) {
  const std::string name = GetParam();
  const auto tokenizer = load("data/vocab/" + name + ".gguf");
  for (const json& row : read_lines("data/tokens/" + name + ".jsonl")) {
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

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenStrings, testing::Values("gpt2", "llama3", "qwen2_5", "qwen3"));

class DecodeStrings : public TokenizerData, public testing::WithParamInterface<const char*> {};

TEST_P(DecodeStrings, GiveBytesPiecesAndStreamedText) {
  const std::string name = GetParam();
  const auto tokenizer = load("data/vocab/" + name + ".gguf");
  for (const json& row : read_lines("data/decode/" + name + ".jsonl")) {
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->decode(ids), from_hex(row["bytes_hex"].get<std::string>())) << row["ids"];
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(tokenizer->piece(ids[i]), from_hex(row["pieces_hex"][i].get<std::string>())) << ids[i];
    }
    EXPECT_EQ(stream(*tokenizer, ids), row["hf_decode"].get<std::string>()) << row["ids"];
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, DecodeStrings, testing::Values("gpt2", "llama3", "qwen3"));

TEST_F(TokenizerData, SentencePieceStringsEncodeExactly) {
  const auto tokenizer = load("models/stories260K/stories260K-F32.gguf");
  for (const json& row : read_lines("models/stories260K/spm512_tokens.jsonl")) {
    const auto text = row["text"].get<std::string>();
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = false}), ids) << row["text"];
    EXPECT_EQ(tokenizer->decode(ids), text.empty() ? "" : " " + text);
  }
}

TEST_F(TokenizerData, MiniVocabularyStringsEncodeExactly) {
  const auto tokenizer = load("models/tiny-qwen3-mini/tiny-qwen3-mini-F32.gguf");
  for (const json& row : read_lines("models/tiny-qwen3-mini/mini_tokens.jsonl")) {
    EXPECT_EQ(tokenizer->encode(row["text"].get<std::string>()), row["ids"].get<std::vector<int32_t>>()) << row["text"];
  }
}

TEST_F(TokenizerData, RealModelsStopAtAllTheirEndTokens) {
  const auto qwen3 = load("data/vocab/qwen3.gguf");
  EXPECT_EQ(std::vector(qwen3->end_tokens().begin(), qwen3->end_tokens().end()), (std::vector{151643, 151645}));
  EXPECT_FALSE(qwen3->wants_bos());
  const auto llama3 = load("data/vocab/llama3.gguf");
  EXPECT_TRUE(llama3->is_end_token(128001));
  EXPECT_TRUE(llama3->is_end_token(128009));
  EXPECT_TRUE(llama3->wants_bos());
  EXPECT_EQ(llama3->encode("a", {.add_bos = true}), (std::vector{128000, 64}));
  const auto stories = load("models/stories260K/stories260K-F32.gguf");
  EXPECT_TRUE(stories->is_end_token(2));
}

class ChatData : public TokenizerData, public testing::WithParamInterface<const char*> {};

// Cases with tools, tool results or a separate reasoning field are outside what ChatFormat renders.
TEST_P(ChatData, PlainMessagesRenderAsTheModelsOwnTemplate) {
  const std::string name = GetParam();
  const ChatFormat format = ChatFormat::from_tokenizer(*load("data/vocab/" + name + ".gguf"));
  int rendered = 0;
  for (const json& row : read_lines("data/chat/" + name + ".jsonl")) {
    const json& options = row["options"];
    bool plain = !options.contains("tools");
    std::vector<ChatMessage> messages;
    for (const json& message : row["messages"]) {
      plain = plain && message.size() == 2 && message["role"] != "tool";
      messages.push_back({message["role"], message["content"]});
    }
    if (!plain) continue;
    const ChatOptions chat_options{.add_generation_prompt = options.value("add_generation_prompt", false),
                                   .enable_thinking = options.value("enable_thinking", true)};
    EXPECT_EQ(format.render(messages, chat_options), row["rendered"].get<std::string>()) << row["name"];
    ++rendered;
  }
  EXPECT_GE(rendered, 12);
}

INSTANTIATE_TEST_SUITE_P(Templates, ChatData, testing::Values("qwen3", "qwen2_5"));

}  // namespace
}  // namespace inferno
