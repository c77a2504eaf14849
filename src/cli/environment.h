// The environment variables that the program reads, for its manual page. docs/environment.md has all of them, with
// those of tests and tools; a test finds one that is missing in either.
#pragma once

#include <span>
#include <string_view>

namespace inferno::cli {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view meaning;
};

[[nodiscard]] std::span<const EnvironmentVariable> environment_variables();

}  // namespace inferno::cli
