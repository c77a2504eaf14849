// What vocabularies of text share: spaces written as a character of their own, and tokens that stand for bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file/vocabulary.h"

namespace inferno {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

[[nodiscard]] std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// The ids of the tokens <0xNN>; -1: the vocabulary has none for this byte.
using ByteIds = std::array<int32_t, 256>;

// Appends the bytes of each token to `pieces`, and fills the ids of byte tokens.
void read_pieces(const Vocabulary& vocabulary, StringList& pieces, ByteIds& byte_ids);

// The byte tokens of text that is no token, or the unknown token where one is missing.
void append_bytes(std::string_view bytes, const Vocabulary& vocabulary, const ByteIds& byte_ids,
                  std::vector<int32_t>& ids);

}  // namespace inferno
