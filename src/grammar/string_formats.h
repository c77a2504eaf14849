// The values of `format` that are enforced, as regular expressions of the whole string.
#pragma once

#include <string>
#include <string_view>

namespace inferno::grammar {

// Null: not a known one.
[[nodiscard]] const std::string* format_pattern(std::string_view name);

}  // namespace inferno::grammar
