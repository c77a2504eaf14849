#include "serve/tool_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "serve/api_error.h"

namespace inferno::serve {
namespace {

using nlohmann::ordered_json;

bool is_name(std::string_view name) {
  constexpr std::string_view kOthers = "_-.:/";
  return !name.empty() && name.size() <= kMaxToolName && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  });
}

// The part of a tool that describes it: {"function": {...}}, or the tool itself in other APIs.
const ordered_json* function_of(const ordered_json& tool, std::string& path) {
  if (!tool.is_object()) fail_field(path, "must be an object");
  const ordered_json type = tool.value("type", ordered_json("function"));
  if (type != "function" && type != "custom") fail_field(path + ".type", "must be function; other tools are not known");
  const auto found = tool.find("function");
  if (found == tool.end()) return &tool;
  path += ".function";
  if (!found->is_object()) fail_field(path, "must be an object");
  return &*found;
}

calls::Tool tool_of(const ordered_json& function, const std::string& path) {
  calls::Tool tool;
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string()) fail_field(path + ".name", "is missing");
  tool.name = name->get<std::string>();
  if (!is_name(tool.name)) {
    fail_field(path + ".name", "must be 1 to {} letters, digits and _-.:/ but is \"{}\"", kMaxToolName,
               printable(tool.name, 40));
  }
  for (const char* key : {"parameters", "input_schema"}) {
    const auto schema = function.find(key);
    if (schema == function.end() || schema->is_null()) continue;
    if (!schema->is_object()) fail_field(fmt::format("{}.{}", path, key), "must be a JSON schema of an object");
    tool.parameters = *schema;
  }
  return tool;
}

ordered_json openai_form(const calls::Tool& tool, const ordered_json& function) {
  ordered_json described = {{"name", tool.name}, {"description", function.value("description", ordered_json(""))}};
  described["parameters"] = tool.parameters.empty()
                                ? ordered_json{{"type", "object"}, {"properties", ordered_json::object()}}
                                : tool.parameters;
  return {{"type", "function"}, {"function", std::move(described)}};
}

// none, auto, required or any; or an object with a type, and a name in one of two places.
void read_choice(const Json& choice, ToolRequest& request, bool& none) {
  const auto is = [&](std::string_view word) { return choice == word; };
  if (is("auto")) return;
  none = is("none");
  request.required = is("required") || is("any");
  if (none || request.required) return;
  if (!choice.is_object()) fail_field("tool_choice", "must be auto, none, required or an object that names a tool");
  const Fields fields(choice, "tool_choice.");
  const std::string* type = fields.string("type");
  if (type != nullptr && *type != "function" && *type != "tool") {
    read_choice(Json(*type), request, none);
  } else {
    const Json* function = fields.object("function");
    const std::string* name =
        function == nullptr ? fields.string("name") : Fields(*function, "tool_choice.function.").string("name");
    if (name == nullptr) fail_field("tool_choice", "names no tool");
    request.required = true;
    request.name = *name;
  }
  if (fields.boolean("disable_parallel_tool_use").value_or(false)) request.parallel = false;
}

ordered_json ordered_tools(std::string_view body) {
  ordered_json parsed = ordered_json::parse(body, nullptr, false);
  const auto tools = parsed.find("tools");
  if (tools == parsed.end() || !tools->is_array()) fail_field("tools", "is not clear");  // there twice
  return std::move(*tools);
}

}  // namespace

ToolRequest tools_of(const Fields& fields, std::string_view body) {
  ToolRequest request;
  request.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  bool none = false;
  if (const Json* choice = fields.find("tool_choice")) read_choice(*choice, request, none);
  const Json* given = fields.array("tools");
  if (given == nullptr || given->empty()) {
    if (request.required) fail_field("tool_choice", "asks for a call, but there are no `tools`");
    return request;
  }
  if (given->size() > kMaxTools) fail_field("tools", "has {} tools, must have at most {}", given->size(), kMaxTools);

  auto tools = std::make_shared<calls::ToolList>();
  ordered_json shown = ordered_json::array();
  for (const ordered_json& tool : ordered_tools(body)) {
    std::string path = fmt::format("tools[{}]", tools->size());
    const ordered_json& function = *function_of(tool, path);
    tools->push_back(tool_of(function, path));
    shown.push_back(openai_form(tools->back(), function));
  }
  if (!request.name.empty() && std::ranges::count(*tools, request.name, &calls::Tool::name) == 0) {
    fail_field("tool_choice", "names \"{}\", which is none of the `tools`", printable(request.name, 40));
  }
  if (none) return {};
  request.tools = std::move(tools);
  request.json = shown.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return request;
}

namespace {

// References within a schema that becomes part of another one, at `place` (a JSON pointer).
void move_references(ordered_json& schema, const std::string& place) {
  if (schema.is_object()) {
    const auto reference = schema.find("$ref");
    if (reference != schema.end() && reference->is_string()) {
      const auto& target = reference->get_ref<const std::string&>();
      if (target.starts_with('#')) *reference = "#" + place + target.substr(1);
    }
  }
  if (!schema.is_structured()) return;
  for (ordered_json& part : schema) move_references(part, place);
}

}  // namespace

std::string call_schema(const ToolRequest& request) {
  ordered_json calls = ordered_json::array();
  for (const calls::Tool& tool : *request.tools) {
    if (!request.name.empty() && tool.name != request.name) continue;
    ordered_json arguments = tool.parameters;
    arguments["type"] = "object";
    move_references(arguments, fmt::format("/anyOf/{}/properties/parameters", calls.size()));
    calls.push_back({{"type", "object"},
                     {"properties", {{"name", {{"const", tool.name}}}, {"parameters", std::move(arguments)}}},
                     {"required", {"name", "parameters"}},
                     {"additionalProperties", false}});
  }
  return ordered_json{{"anyOf", std::move(calls)}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string arguments_text(const Json& arguments) {
  return arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
}

std::vector<ToolCall> tool_calls_of(const Fields& message) {
  std::vector<ToolCall> made;
  const Json* given = message.array("tool_calls");
  if (given == nullptr) return made;
  for (const Json& call : *given) {
    const std::string path = fmt::format("{}[{}]", message.path("tool_calls"), made.size());
    if (!call.is_object()) fail_field(path, "is {}, must be an object", kind_of(call));
    const Json* function = Fields(call, path + ".").object("function");
    if (function == nullptr) fail_field(path + ".function", "is missing");
    const Fields fields(*function, path + ".function.");
    const std::string* name = fields.string("name");
    if (name == nullptr) fail_field(fields.path("name"), "is missing");
    const std::string* id = Fields(call, path + ".").string("id");
    const Json* arguments = fields.find("arguments");
    made.push_back({.id = id == nullptr ? "" : *id,
                    .name = *name,
                    .arguments = arguments == nullptr ? "{}" : arguments_text(*arguments)});
  }
  return made;
}

}  // namespace inferno::serve
