#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>

#include "template/lexer.h"
#include "template/lexer_numbers.h"
#include "template/unicode.h"

namespace inferno::jinja {
namespace {

bool is_ascii_digit(char c) {
  return c >= '0' && c <= '9';
}

int digit_value(char c) {
  if (is_ascii_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

// End of digits below `base` with single underscores between them; `at` when there are none. A first underscore is
// allowed when `leading` says so.
size_t skip_digits(std::string_view source, size_t at, int base, bool leading = false) {
  size_t end = at;
  bool may_underscore = leading;
  while (end < source.size()) {
    const size_t digit = may_underscore && source[end] == '_' ? end + 1 : end;
    if (digit >= source.size() || digit_value(source[digit]) >= base) break;
    end = digit + 1;
    may_underscore = true;
  }
  return end;
}

std::string without_underscores(std::string_view digits) {
  std::string out(digits);
  std::erase(out, '_');
  return out;
}

NumberMatch parse_integer(std::string_view digits, int base, size_t size) {
  NumberMatch match{.size = size};
  const std::string text = without_underscores(digits);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), match.integer, base);
  match.too_large = result.ec != std::errc();
  return match;
}

// Digits, then a fraction, an exponent or both.
size_t match_float(std::string_view source, size_t at) {
  if (at > 0 && source[at - 1] == '.') return 0;
  const size_t whole = skip_digits(source, at, 10);
  if (whole == at) return 0;
  size_t end = whole;
  if (end < source.size() && source[end] == '.') {
    const size_t fraction = skip_digits(source, end + 1, 10);
    if (fraction > end + 1) end = fraction;
  }
  if (end < source.size() && (source[end] == 'e' || source[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < source.size() && (source[exponent] == '+' || source[exponent] == '-')) ++exponent;
    const size_t digits = skip_digits(source, exponent, 10);
    if (digits > exponent) end = digits;
  }
  return end > whole ? end : 0;
}

class Unescape {
 public:
  Unescape(std::string_view text, int line) : text_(text), line_(line) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        read_escape();
      } else {
        out_ += text_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  void read_escape() {
    const char c = text_[at_ + 1];
    at_ += 2;
    switch (c) {
      case '\n':
        return;
      case '\\':
      case '\'':
      case '"':
        out_ += c;
        return;
      case 'a':
        out_ += '\a';
        return;
      case 'b':
        out_ += '\b';
        return;
      case 'f':
        out_ += '\f';
        return;
      case 'n':
        out_ += '\n';
        return;
      case 'r':
        out_ += '\r';
        return;
      case 't':
        out_ += '\t';
        return;
      case 'v':
        out_ += '\v';
        return;
      case 'x':
        return read_code(2);
      case 'u':
        return read_code(4);
      case 'U':
        return read_code(8);
      case 'N':
        throw SyntaxFailure(line_, "\\N{...} in a string is not supported");
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      --at_;
      size_t end = at_;
      unsigned code = 0;
      for (; end < text_.size() && end < at_ + 3 && text_[end] >= '0' && text_[end] <= '7'; ++end) {
        code = code * 8 + static_cast<unsigned>(text_[end] - '0');
      }
      at_ = end;
      append_character(out_, code);
      return;
    }
    out_ += '\\';
    if (static_cast<unsigned char>(c) < 0x80) {
      out_ += c;
      return;
    }
    // jinja2 writes what is not ASCII as an escape before it reads escapes.
    const Character character = character_at(text_, at_ - 1);
    at_ += character.size - 1;
    const auto code = static_cast<uint32_t>(character.code);
    if (code < 0x100) {
      out_ += fmt::format("x{:02x}", code);
    } else {
      out_ += code < 0x10000 ? fmt::format("u{:04x}", code) : fmt::format("U{:08x}", code);
    }
  }

  void read_code(size_t digits) {
    char32_t code = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      if (at_ >= text_.size() || digit_value(text_[at_]) > 15)
        throw SyntaxFailure(line_, "an escape in a string is cut");
      code = code * 16 + static_cast<unsigned>(digit_value(text_[at_]));
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      throw SyntaxFailure(line_, "an escape in a string is no character");
    }
    append_character(out_, code);
  }

  std::string_view text_;
  int line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

NumberMatch match_number(std::string_view source, size_t at) {
  if (const size_t end = match_float(source, at); end != 0) {
    NumberMatch match{.size = end - at, .is_float = true};
    const std::string text = without_underscores(source.substr(at, end - at));
    match.floating = std::strtod(text.c_str(), nullptr);
    return match;
  }
  if (at >= source.size() || !is_ascii_digit(source[at])) return {};
  if (source[at] == '0' && at + 1 < source.size()) {
    const char mark = source[at + 1];
    const int base = mark == 'x' || mark == 'X'   ? 16
                     : mark == 'o' || mark == 'O' ? 8
                     : mark == 'b' || mark == 'B' ? 2
                                                  : 0;
    if (base != 0) {
      const size_t end = skip_digits(source, at + 2, base, true);
      if (end > at + 2) return parse_integer(source.substr(at + 2, end - at - 2), base, end - at);
    }
  }
  const size_t end = skip_digits(source, at, source[at] == '0' ? 1 : 10);
  return parse_integer(source.substr(at, end - at), 10, end - at);
}

std::string unescape(std::string_view text, int line) {
  return Unescape(text, line).run();
}

}  // namespace inferno::jinja
