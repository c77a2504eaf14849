// Values as text: Python's str(), repr() and json.dumps().
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "template/run.h"
#include "template/value.h"

namespace inferno::jinja {

// Numbers and the marks of containers are the template's own text, unless a user's number is among them.
[[nodiscard]] Text to_text(Run& run, const Value& value);
[[nodiscard]] Text to_repr(Run& run, const Value& value);
[[nodiscard]] std::string format_float(double value);
// < > & ' " as HTML entities.
[[nodiscard]] Text escape_html(const Text& text);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<Text> indent;  // of one level
  Text item_separator{", ", true};
  Text key_separator{": ", true};
  bool sort_keys = false;
};
[[nodiscard]] Text to_json(Run& run, const Value& value, const JsonStyle& style);

// What a user gives: no text of it is control. An Error when it is nested too deep.
[[nodiscard]] Value from_json(const nlohmann::ordered_json& json);

}  // namespace inferno::jinja
