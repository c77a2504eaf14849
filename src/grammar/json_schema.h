// JSON Schema (2020-12, and what older drafts wrote differently) to rules: exactly the JSON texts that fit, in a form
// of our choice. docs/structured-output.md lists the keywords and the form.
//
// What is not enforced is an Error that names the keyword and its path; nothing is ignored but annotations.
#pragma once

#include <string_view>

#include "grammar/rules.h"

namespace inferno::grammar {

[[nodiscard]] Rules parse_json_schema(std::string_view text, const Limits& limits);

}  // namespace inferno::grammar
