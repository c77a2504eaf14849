// Characters of a text, one after the other, for the parsers of patterns and grammars.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace inferno::grammar {

inline constexpr uint32_t kNoChar = UINT32_MAX;

class Utf8Reader {
 public:
  // `what` begins messages: "the pattern".
  Utf8Reader(std::string_view text, std::string_view what) : text_(text), what_(what) {
    if (!is_valid_utf8(text)) fail_usage("{} is not UTF-8", what);
  }

  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  [[nodiscard]] size_t position() const { return at_; }
  void seek(size_t position) { at_ = position; }
  // kNoChar at the end.
  [[nodiscard]] uint32_t peek() const {
    Utf8Reader copy = *this;
    return copy.next();
  }
  uint32_t next() {
    if (at_end()) return kNoChar;
    const size_t length = utf8_sequence_length(text_.substr(at_));
    uint32_t c = static_cast<uint8_t>(text_[at_]);
    if (length > 1) c &= 0xFFU >> (length + 1);
    for (size_t i = 1; i < length; ++i) c = c << 6 | (static_cast<uint8_t>(text_[at_ + i]) & 0x3FU);
    at_ += length;
    return c;
  }
  bool skip(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }
  // A number of exactly `digits` hexadecimal digits.
  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const uint32_t c = next();
      const uint32_t letter = c | 0x20U;
      if (c >= '0' && c <= '9') {
        value = value << 4 | (c - '0');
      } else if (letter >= 'a' && letter <= 'f' && c < 0x80) {
        value = value << 4 | (letter - 'a' + 10);
      } else {
        wrong("an escape needs {} hexadecimal digits", digits);
      }
    }
    return value;
  }
  // A decimal number, at most `most`; kNoChar: there is none.
  uint32_t decimal(uint32_t most) {
    if (at_end() || text_[at_] < '0' || text_[at_] > '9') return kNoChar;
    uint64_t value = 0;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + static_cast<uint64_t>(text_[at_] - '0');
      if (value > most) wrong("a repetition is larger than {}", most);
    }
    return static_cast<uint32_t>(value);
  }
  // An Error that says where.
  template <typename... Args>
  [[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) const {
    fail_usage("{}: {} (at byte {})", what_, fmt::format(format, std::forward<Args>(args)...), at_);
  }

 private:
  std::string_view text_;
  std::string_view what_;
  size_t at_ = 0;
};

}  // namespace inferno::grammar
