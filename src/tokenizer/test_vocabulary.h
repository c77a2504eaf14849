// Small vocabularies for tests.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "file/vocabulary.h"

namespace inferno {

// The letter that spells a byte in byte-level vocabularies, written from its definition.
inline std::string byte_letter(int byte) {
  int letter = byte;
  if (byte <= 0x20) letter = 0x100 + byte;
  if (byte >= 0x7F && byte <= 0xA0) letter = 0x121 + byte - 0x7F;
  if (byte == 0xAD) letter = 0x143;
  if (letter < 0x80) return {static_cast<char>(letter)};
  return {static_cast<char>(0xC0 | letter >> 6), static_cast<char>(0x80 | (letter & 0x3F))};
}

// Byte-level BPE: token i < 256 is byte i, then one token per merge ("Ġ t"), then control tokens.
inline Vocabulary byte_vocabulary(std::string pre, const std::vector<std::string>& merges,
                                  const std::vector<std::string>& control = {}) {
  std::vector<std::string> tokens;
  tokens.reserve(256);
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_letter(byte));
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = std::move(pre);
  vocabulary.types.assign(tokens.size(), TokenType::normal);
  for (const std::string& text : control) {
    tokens.push_back(text);
    vocabulary.types.push_back(TokenType::control);
  }
  vocabulary.tokens = StringList(tokens);
  vocabulary.merges = StringList(merges);
  return vocabulary;
}

// SentencePiece-style BPE: <unk>, <s>, </s>, 256 byte tokens (3 to 258), then the given tokens with their scores.
inline Vocabulary scored_vocabulary(const std::vector<std::pair<std::string, float>>& scored) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.types = {TokenType::unknown, TokenType::control, TokenType::control};
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    vocabulary.types.push_back(TokenType::byte);
  }
  vocabulary.scores.assign(tokens.size(), 0.0F);
  for (const auto& [text, score] : scored) {
    tokens.push_back(text);
    vocabulary.types.push_back(TokenType::normal);
    vocabulary.scores.push_back(score);
  }
  vocabulary.tokens = StringList(tokens);
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = true;
  vocabulary.add_space_prefix = true;
  return vocabulary;
}

}  // namespace inferno
