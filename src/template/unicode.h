// Characters as Python's str sees them: code points, their kinds and their case.
//
// A byte that is not part of valid UTF-8 counts as one character, is kept as it is, and is of no kind.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace inferno::jinja {

struct Character {
  char32_t code = 0;  // invalid bytes: kInvalid + byte
  size_t size = 0;    // bytes
};
constexpr char32_t kInvalid = 0x110000;

[[nodiscard]] Character character_at(std::string_view text, size_t offset);  // offset < text.size()
// The character that ends at `offset`, offset > 0.
[[nodiscard]] Character character_before(std::string_view text, size_t offset);
void append_character(std::string& out, char32_t code);

[[nodiscard]] size_t count_characters(std::string_view text);
// Byte offset of the character with this index; text.size() when there are fewer.
[[nodiscard]] size_t offset_of(std::string_view text, size_t index);

[[nodiscard]] bool is_space(char32_t code);
[[nodiscard]] bool is_line_break(char32_t code);  // where splitlines() splits
[[nodiscard]] bool is_alpha(char32_t code);
[[nodiscard]] bool is_decimal(char32_t code);
[[nodiscard]] bool is_digit(char32_t code);
[[nodiscard]] bool is_numeric(char32_t code);
[[nodiscard]] bool is_printable(char32_t code);
[[nodiscard]] bool is_upper(char32_t code);
[[nodiscard]] bool is_lower(char32_t code);
[[nodiscard]] bool is_title(char32_t code);

void append_upper(std::string& out, char32_t code);
void append_lower(std::string& out, char32_t code);
void append_title(std::string& out, char32_t code);

}  // namespace inferno::jinja
