// What a user gives to say what a text must be, and the rules that it means.
#pragma once

#include <string>
#include <vector>

#include "grammar/rules.h"

namespace inferno::grammar {

enum class SourceKind : uint8_t { json_schema, regex, gbnf, choice };

struct Source {
  SourceKind kind = SourceKind::json_schema;
  std::string text;                  // of all kinds but choice
  std::vector<std::string> choices;  // the texts to choose from
};

// What is wrong with it is an Error.
[[nodiscard]] Rules parse_source(const Source& source, const Limits& limits);

}  // namespace inferno::grammar
