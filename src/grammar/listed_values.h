// Values of `enum` and `const` as texts.
#pragma once

#include <string>
#include <vector>

#include "grammar/schema_document.h"

namespace inferno::grammar {

// All texts of the value, without space. Numbers are compared by value: 2 is also 2.0, unless fractions may not be
// written and the schema has none. A value with many such numbers is only taken as the schema writes it.
[[nodiscard]] std::vector<std::string> listed_texts(const SchemaJson& value, bool fractions);

}  // namespace inferno::grammar
