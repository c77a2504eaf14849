// Regular expressions (ECMA-262 without what is not regular): literals, classes, groups, alternatives, repetitions, ^
// and $ at the ends. Look-around, back-references, \b, \p and flags are an Error that names them.
#pragma once

#include <functional>
#include <string_view>

#include "grammar/expression.h"

namespace inferno::grammar {

// How a character of a set is written in the text: in UTF-8, or as in a JSON string.
using WriteChars = std::function<ExprId(const CharSet& set)>;

enum class RegexMatch : uint8_t {
  whole,  // the pattern is the whole text
  part,   // the pattern is somewhere in it, unless ^ or $ say where
};

[[nodiscard]] ExprId parse_regex(std::string_view pattern, RegexMatch match, ExprPool& pool, const WriteChars& write,
                                 const Limits& limits);

}  // namespace inferno::grammar
