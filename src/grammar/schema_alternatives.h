// Multiplies a schema out: $ref, allOf, anyOf and oneOf go, and what stays is a list of alternatives, each a list of
// schemas that hold at once, of which only the other keywords count.
#pragma once

#include <utility>
#include <vector>

#include "grammar/schema_document.h"

namespace inferno::grammar {

// Schemas that hold at once.
using Schemas = std::vector<const SchemaJson*>;

struct Alternative {
  Schemas schemas;
  // Which branch of which oneOf it comes from: the value must fit no other one.
  std::vector<std::pair<const SchemaJson*, size_t>> branches;
};

// None: nothing fits. Too many, or a reference that leads to itself, are an Error.
[[nodiscard]] std::vector<Alternative> alternatives_of(const Schemas& schemas, SchemaDocument& document,
                                                       const Limits& limits);

}  // namespace inferno::grammar
