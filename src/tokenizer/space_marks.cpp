#include "tokenizer/space_marks.h"

#include <algorithm>

#include "tokenizer/unknown_token.h"

namespace inferno {
namespace {

// The byte that "<0xNN>" names.
std::optional<unsigned char> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (const char digit : text.substr(3, 2)) {
    value <<= 4;
    if (digit >= '0' && digit <= '9') {
      value += static_cast<unsigned>(digit - '0');
    } else if (digit >= 'A' && digit <= 'F') {
      value += static_cast<unsigned>(digit - 'A' + 10);
    } else if (digit >= 'a' && digit <= 'f') {
      value += static_cast<unsigned>(digit - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return static_cast<unsigned char>(value);
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t found = text.find(from);
    out.append(text.substr(0, found));
    if (found == std::string_view::npos) return out;
    out.append(to);
    text.remove_prefix(found + from.size());
  }
}

void read_pieces(const Vocabulary& vocabulary, StringList& pieces, ByteIds& byte_ids) {
  byte_ids.fill(-1);
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string_view text = vocabulary.tokens[i];
    const TokenType type = vocabulary.types[i];
    const std::optional<unsigned char> byte = type == TokenType::byte ? parse_byte_token(text) : std::nullopt;
    if (byte) {
      const char as_char = static_cast<char>(*byte);
      pieces.append(std::string_view(&as_char, 1));
      if (byte_ids[*byte] < 0) byte_ids[*byte] = static_cast<int32_t>(i);
    } else if (type == TokenType::control || type == TokenType::unknown) {
      pieces.append(text);
    } else {
      pieces.append(replace_all(text, kSpaceMark, " "));
    }
  }
}

void append_bytes(std::string_view bytes, const Vocabulary& vocabulary, const ByteIds& byte_ids,
                  std::vector<int32_t>& ids) {
  const auto id_of = [&](char byte) { return byte_ids[static_cast<unsigned char>(byte)]; };
  if (std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : bytes) ids.push_back(id_of(byte));
  } else {
    ids.push_back(unknown_token(vocabulary, bytes));
  }
}

}  // namespace inferno
