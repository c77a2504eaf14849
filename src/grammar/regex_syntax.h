// The syntax tree of a regular expression.
#pragma once

#include <string_view>
#include <vector>

#include "grammar/char_set.h"
#include "grammar/limits.h"

namespace inferno::grammar {

struct RegexNode {
  enum class Kind : uint8_t { chars, sequence, choice, repeat, begin, end };
  Kind kind = Kind::sequence;
  CharSet chars = {};
  std::vector<RegexNode> parts = {};
  uint32_t least = 0, most = 0;  // repeat, of its only part
};

// What is no regular expression, or cannot be one over a stream of text, is an Error that says where.
[[nodiscard]] RegexNode parse_regex_syntax(std::string_view pattern, const Limits& limits);

}  // namespace inferno::grammar
