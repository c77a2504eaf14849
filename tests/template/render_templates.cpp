// Renders templates for tools/check_templates.py, which compares with jinja2.
//
// Reads lines of JSON: {"template": name or text, "variables": {...}, "control": {name: text}, "now": seconds}; a
// template's text is given once under "define". Writes one line each: {"pieces": [[text, control], ...]} or {"error":
// ...}. {"format_of": text} is answered with the format of tool calls that the template shows: {"format": name}.
#include <fmt/core.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "calls/format.h"
#include "inferno/error.h"
#include "template/template.h"
#include "template/value_text.h"

namespace {

using nlohmann::ordered_json;

struct Compiled {
  std::optional<inferno::Template> program;
  std::string error;
};

ordered_json render(const Compiled& compiled, const ordered_json& request) {
  if (!compiled.program) return {{"error", compiled.error}};
  inferno::TemplateVariables variables;
  for (const auto& [name, value] : request["variables"].items()) variables.set(name, inferno::jinja::from_json(value));
  if (request.contains("control")) {
    for (const auto& [name, value] : request["control"].items()) {
      variables.set(name, inferno::jinja::Value::control(value.get_ref<const std::string&>()));
    }
  }
  try {
    ordered_json pieces = ordered_json::array();
    for (const inferno::PromptPiece& piece : compiled.program->render(variables, {}, request.value("now", 0))) {
      pieces.push_back({piece.text, piece.control});
    }
    return {{"pieces", pieces}};
  } catch (const inferno::Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  std::map<std::string, Compiled> templates;
  for (std::string line; std::getline(std::cin, line);) {
    const ordered_json request = ordered_json::parse(line);
    if (request.contains("format_of")) {
      const auto format = inferno::calls::detect_format(request["format_of"].get_ref<const std::string&>());
      std::cout << ordered_json{{"format", inferno::calls::spec_of(format).name}}.dump() << "\n" << std::flush;
      continue;
    }
    const auto name = request["template"].get<std::string>();
    if (request.contains("define")) {
      Compiled& compiled = templates[name];
      compiled = {};
      try {
        compiled.program.emplace(request["define"].get_ref<const std::string&>());
      } catch (const inferno::Error& error) {
        compiled.error = error.what();
      }
      continue;
    }
    const ordered_json answer = render(templates.at(name), request);
    std::cout << answer.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n" << std::flush;
  }
  return 0;
}
