#include "template/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "base/text.h"

namespace inferno::jinja {
namespace {

// Characters first, first + step, ... last become character + distance.
struct CaseRange {
  char32_t first, last;
  int step;
  int distance;
};
struct CaseExpansion {
  char32_t from;
  std::array<char32_t, 3> to;  // ends at a zero
};

#include "template/unicode_tables.inc"

bool in_ranges(std::span<const uint32_t> ranges, char32_t code) {
  if (code >= kInvalid) return false;
  const uint32_t key = static_cast<uint32_t>(code) << 11 | 0x7FF;
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), key);
  if (after == ranges.begin()) return false;
  const uint32_t range = *std::prev(after);
  return code - (range >> 11) <= (range & 0x7FF);
}

const CaseExpansion* find_expansion(std::span<const CaseExpansion> table, char32_t code) {
  const auto found = std::lower_bound(table.begin(), table.end(), code,
                                      [](const CaseExpansion& row, char32_t wanted) { return row.from < wanted; });
  return found != table.end() && found->from == code ? &*found : nullptr;
}

char32_t map_one(std::span<const CaseRange> table, char32_t code) {
  const auto after = std::upper_bound(table.begin(), table.end(), code,
                                      [](char32_t wanted, const CaseRange& row) { return wanted < row.first; });
  if (after == table.begin()) return code;
  const CaseRange& range = *std::prev(after);
  const bool inside = code <= range.last && (code - range.first) % static_cast<unsigned>(range.step) == 0;
  return inside ? static_cast<char32_t>(static_cast<int>(code) + range.distance) : code;
}

void append_mapped(std::string& out, char32_t code, std::span<const CaseExpansion> expansions,
                   std::span<const CaseRange> table) {
  if (const CaseExpansion* row = find_expansion(expansions, code)) {
    for (const char32_t to : row->to) {
      if (to != 0) append_character(out, to);
    }
    return;
  }
  append_character(out, map_one(table, code));
}

bool is_ascii_upper(char32_t code) {
  return code >= 'A' && code <= 'Z';
}
bool is_ascii_lower(char32_t code) {
  return code >= 'a' && code <= 'z';
}

}  // namespace

Character character_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  switch (utf8_sequence_length(text.substr(offset, 4))) {
    case 2:
      return {(lead & 0x1FU) << 6 | (byte(1) & 0x3FU), 2};
    case 3:
      return {(lead & 0x0FU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU), 3};
    case 4:
      return {(lead & 0x07U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU), 4};
    default:
      return {kInvalid + lead, 1};
  }
}

Character character_before(std::string_view text, size_t offset) {
  for (size_t size = 2; size <= 4 && size <= offset; ++size) {
    const Character found = character_at(text, offset - size);
    if (found.size == size) return found;
  }
  return character_at(text, offset - 1);
}

void append_character(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code >= kInvalid) {
    put(code - kInvalid);
  } else if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) i += character_at(text, i).size;
  return count;
}

size_t offset_of(std::string_view text, size_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset += character_at(text, offset).size;
  return offset;
}

bool is_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_line_break(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

bool is_alpha(char32_t code) {
  return code < 0x80 ? is_ascii_upper(code) || is_ascii_lower(code) : in_ranges(kAlpha, code);
}

bool is_decimal(char32_t code) {
  return code < 0x80 ? code >= '0' && code <= '9' : in_ranges(kDecimal, code);
}

bool is_digit(char32_t code) {
  return code < 0x80 ? is_decimal(code) : in_ranges(kDigit, code);
}

bool is_numeric(char32_t code) {
  return code < 0x80 ? is_decimal(code) : in_ranges(kNumeric, code);
}

bool is_printable(char32_t code) {
  if (code < 0x80) return code >= 0x20 && code < 0x7F;
  if (code > kLastVisible) return code >= 0xE0100 && code <= 0xE01EF;
  return !in_ranges(kHidden, code);
}

bool is_upper(char32_t code) {
  if (code < 0x80) return is_ascii_upper(code);
  return !is_title(code) && (map_one(kLower, code) != code || find_expansion(kLowerExpansions, code) != nullptr);
}

bool is_lower(char32_t code) {
  if (code < 0x80) return is_ascii_lower(code);
  return !is_title(code) && (map_one(kUpper, code) != code || find_expansion(kUpperExpansions, code) != nullptr);
}

bool is_title(char32_t code) {
  return code >= 0x80 && map_one(kLower, code) != code && map_one(kUpper, code) != code;
}

void append_upper(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(is_ascii_lower(code) ? code - 32 : code);
  } else {
    append_mapped(out, code, kUpperExpansions, kUpper);
  }
}

void append_lower(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(is_ascii_upper(code) ? code + 32 : code);
  } else {
    append_mapped(out, code, kLowerExpansions, kLower);
  }
}

void append_title(std::string& out, char32_t code) {
  const CaseExpansion* row = code < 0x80 ? nullptr : find_expansion(kTitle, code);
  if (row == nullptr) {
    append_upper(out, code);
    return;
  }
  for (const char32_t to : row->to) {
    if (to != 0) append_character(out, to);
  }
}

}  // namespace inferno::jinja
