// Fields that say what an answer must be, in the words of several APIs.
#pragma once

#include <string>
#include <string_view>

#include "inferno/types.h"
#include "serve/json_fields.h"

namespace inferno::serve {

// What an answer must be, and the field that says so (empty: none does).
struct ConstraintField {
  Constraint constraint;
  std::string field;
};

// response_format, text.format, format, json_schema, grammar, regex, choice, guided_*, structured_outputs. More than
// one is an ApiError. `body` is the text of the fields: the order of a schema's properties is only there.
[[nodiscard]] ConstraintField constraint_of(const Fields& fields, std::string_view body);

}  // namespace inferno::serve
