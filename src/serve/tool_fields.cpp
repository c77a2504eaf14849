#include "serve/tool_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "serve/api_error.h"

namespace inferno::serve {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

ToolRequest tools_of(const Fields& fields, std::string_view body) {
  ToolRequest request;
  request.parallel = fields.boolean("parallel_tool_calls").value_or(true);
  bool none = false;
  if (const Json* choice = fields.find("tool_choice")) read_choice(*choice, request, none);
  const Json* given = fields.array("tools");
  try {
    if (given != nullptr && !given->empty()) read_tools(ordered_field(body, "tools"), request);
    check_choice(request);
  } catch (const ToolError& error) {
    fail_field(error.path(), "{}", error.problem());
  }
  return none ? ToolRequest{} : request;
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

void order_arguments(std::string_view body, std::vector<ChatMessage>& messages) {
  if (std::ranges::all_of(messages, [](const ChatMessage& m) { return m.tool_calls.empty(); })) return;
  const ordered_json given = ordered_field(body, "messages");
  for (size_t m = 0; m < messages.size(); ++m) {
    for (size_t c = 0; c < messages[m].tool_calls.size(); ++c) {
      const auto at = ordered_json::json_pointer(fmt::format("/{}/tool_calls/{}/function/arguments", m, c));
      if (given.contains(at) && given[at].is_object()) messages[m].tool_calls[c].arguments = given[at].dump();
    }
  }
}

}  // namespace inferno::serve
