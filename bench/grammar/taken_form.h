// An instance in the form in which a grammar takes it: its properties in another order, 1 for 1.0.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "grammar/matcher.h"

namespace inferno::grammar {

// The text of the instance, without space; empty where none was found that fits. The grammar's vocabulary has byte b as
// the token b.
[[nodiscard]] std::optional<std::string> in_taken_form(Grammar& bytes, const nlohmann::ordered_json& instance);

}  // namespace inferno::grammar
