// Grammars as text, in the form that llama.cpp reads (GBNF).
//
//   root  ::= greeting "\n"*          # a comment
//   greeting ::= "hello " [a-z]+ | ( "good " ("morning" | "night") ){1,2}
//
// A text begins with the rule `root`. Left recursion and references to tokens are Errors.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace inferno::grammar {

[[nodiscard]] Rules parse_gbnf(std::string_view source, const Limits& limits);

}  // namespace inferno::grammar
