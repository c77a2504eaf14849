// The options that say what a text must be: files, read when they are needed.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "inferno/types.h"

namespace inferno::cli {

struct ConstraintFlags {
  std::string json_schema, grammar;  // files
  std::string regex;

  void add_to(CLI::App& command);
  [[nodiscard]] Constraint read() const;
};

// What a line of JSON asks for, in place of what all lines have; a field of the wrong kind is an Error.
[[nodiscard]] Constraint constraint_of(const nlohmann::ordered_json& line, const Constraint& common);

}  // namespace inferno::cli
