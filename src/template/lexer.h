// Template source to tokens, with the white space around tags removed as trim_blocks, lstrip_blocks and the - and +
// signs of tags say.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace inferno::jinja {

enum class TokenType : uint8_t {
  end,
  data,  // text between tags
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  integer,
  floating,
  // operators
  add,
  subtract,
  divide,
  floor_divide,
  multiply,
  modulo,
  power,
  tilde,
  left_bracket,
  right_bracket,
  left_paren,
  right_paren,
  left_brace,
  right_brace,
  equal,
  not_equal,
  greater,
  greater_equal,
  less,
  less_equal,
  assign,
  dot,
  colon,
  pipe,
  comma,
  semicolon
};

struct Token {
  TokenType type = TokenType::end;
  int line = 1;
  std::string text;  // data, name, string (unescaped)
  int64_t integer = 0;
  double floating = 0;
};

// An Error's worth of trouble at a place of the source.
class SyntaxFailure : public std::runtime_error {
 public:
  SyntaxFailure(int where, const std::string& message) : std::runtime_error(message), line(where) {}
  int line;
};

// All tokens, the last of type `end`.
[[nodiscard]] std::vector<Token> tokenize(std::string_view source);

// A string between quotes, escapes as in Python.
[[nodiscard]] std::string unescape(std::string_view text, int line);

}  // namespace inferno::jinja
