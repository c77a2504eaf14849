#include "engine/tool_request.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "engine/chat.h"
#include "engine/reasoning.h"
#include "tokenizer/tokenizer.h"

namespace inferno {
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
const ordered_json& function_of(const ordered_json& tool, std::string& path) {
  if (!tool.is_object()) throw ToolError(path, "must be an object");
  const ordered_json type = tool.value("type", ordered_json("function"));
  if (type != "function" && type != "custom") {
    throw ToolError(path + ".type", "must be function; other tools are not known");
  }
  const auto found = tool.find("function");
  if (found == tool.end()) return tool;  // NOLINT(bugprone-return-const-ref-from-parameter): its owner outlives this
  path += ".function";
  if (!found->is_object()) throw ToolError(path, "must be an object");
  return *found;
}

calls::Tool tool_of(const ordered_json& function, const std::string& path) {
  calls::Tool tool;
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string()) throw ToolError(path + ".name", "is missing");
  tool.name = name->get<std::string>();
  if (!is_name(tool.name)) {
    throw ToolError(path + ".name", fmt::format("must be 1 to {} letters, digits and _-.:/ but is \"{}\"", kMaxToolName,
                                                printable(tool.name, 40)));
  }
  for (const char* key : {"parameters", "input_schema"}) {
    const auto schema = function.find(key);
    if (schema == function.end() || schema->is_null()) continue;
    if (!schema->is_object()) throw ToolError(fmt::format("{}.{}", path, key), "must be a JSON schema of an object");
    tool.parameters = *schema;
  }
  tool.strict = function.value("strict", ordered_json(false)) == true;
  return tool;
}

ordered_json openai_form(const calls::Tool& tool, const ordered_json& function) {
  ordered_json described = {{"name", tool.name}, {"description", function.value("description", ordered_json(""))}};
  described["parameters"] = tool.parameters.empty()
                                ? ordered_json{{"type", "object"}, {"properties", ordered_json::object()}}
                                : tool.parameters;
  return {{"type", "function"}, {"function", std::move(described)}};
}

bool is_required(const ChatOptions& options) {
  return options.tool_choice != "auto" && options.tool_choice != "none" && !options.tool_choice.empty();
}

}  // namespace

void read_tools(const ordered_json& given, ToolRequest& request) {
  if (given.empty()) return;
  if (given.size() > kMaxTools) {
    throw ToolError("tools", fmt::format("has {} tools, must have at most {}", given.size(), kMaxTools));
  }
  auto tools = std::make_shared<calls::ToolList>();
  ordered_json shown = ordered_json::array();
  for (const ordered_json& tool : given) {
    std::string path = fmt::format("tools[{}]", tools->size());
    const ordered_json& function = function_of(tool, path);
    tools->push_back(tool_of(function, path));
    shown.push_back(openai_form(tools->back(), function));
  }
  request.tools = std::move(tools);
  request.json = shown.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void check_choice(const ToolRequest& request) {
  if (!request.required) return;
  if (request.empty()) throw ToolError("tool_choice", "asks for a call, but there are no `tools`");
  if (!request.name.empty() && std::ranges::count(*request.tools, request.name, &calls::Tool::name) == 0) {
    throw ToolError("tool_choice",
                    fmt::format("names \"{}\", which is none of the `tools`", printable(request.name, 40)));
  }
}

ToolRequest tool_request(const ChatOptions& options) {
  ToolRequest request;
  request.parallel = options.parallel_tool_calls;
  request.required = is_required(options);
  if (request.required && options.tool_choice != "required") request.name = options.tool_choice;
  if (!options.tools.empty()) {
    const ordered_json tools = ordered_json::parse(options.tools, nullptr, false);
    if (!tools.is_array()) fail_usage("tools must be an array in JSON");
    read_tools(tools, request);
  }
  check_choice(request);
  return options.tool_choice == "none" ? ToolRequest{} : request;
}

ChatOptions shown_options(ChatOptions options) {
  if (options.tool_choice == "none") options.tools.clear();
  if (!options.tools.empty() && is_required(options)) options.enable_thinking = false;
  return options;
}

AnswerForm answer_form(const Tokenizer& tokenizer, std::string_view chat_template, const ToolRequest& request,
                       bool reasoning, std::span<const int32_t> prompt) {
  constexpr size_t kTail = 8;  // tokens: longer than any way to write a marker of thinking
  const calls::Format format = calls::detect_format(chat_template_of(tokenizer, chat_template));
  AnswerForm form{.reasoning = reasoning};
  form.prompt_end = tokenizer.decode(prompt.last(std::min(prompt.size(), kTail)));
  // gpt-oss: channels are part of every answer.
  if (request.empty() && !(reasoning && format == calls::Format::harmony)) return form;
  form.calls = request.required ? calls::required_format(format) : format;
  form.tools = request.tools;
  // A call that is required is all of the answer.
  if (request.required) form.reasoning = false;
  return form;
}

std::optional<calls::CallForm> call_form(const AnswerForm& form, const ToolRequest& request) {
  if (request.empty() || !form.calls) return std::nullopt;
  calls::CallForm made{.format = *form.calls,
                       .tools = request.tools,
                       .required = request.required,
                       .name = request.name,
                       .parallel = request.parallel};
  if (form.reasoning && made.format != calls::Format::harmony) {
    made.thinking.assign(thinking_markers().begin(), thinking_markers().end());
    made.begins_in = opened_thinking(form.prompt_end);
  }
  return made;
}

}  // namespace inferno
