#include "engine/tools_as_text.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace inferno {
namespace {

using nlohmann::ordered_json;

std::string line_of(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string described(const ordered_json& tools) {
  std::string text = "You may call functions. They are, as JSON:\n<tools>\n";
  for (const ordered_json& tool : tools) text += line_of(tool) + "\n";
  return text +
         "</tools>\nTo call one, answer with its name and its arguments as a JSON object, in this form:\n<tool_call>\n"
         "{\"name\": \"NAME\", \"arguments\": {\"ARGUMENT\": VALUE}}\n</tool_call>";
}

std::string call_text(const ToolCall& call) {
  ordered_json arguments = ordered_json::parse(call.arguments, nullptr, false);
  if (arguments.is_discarded()) arguments = call.arguments;
  return fmt::format("<tool_call>\n{}\n</tool_call>", line_of({{"name", call.name}, {"arguments", arguments}}));
}

}  // namespace

std::vector<ChatMessage> tools_as_text(std::span<const ChatMessage> messages, const ordered_json& tools) {
  std::vector<ChatMessage> plain(messages.begin(), messages.end());
  if (plain.empty() || plain.front().role != "system") plain.insert(plain.begin(), {.role = "system"});
  std::string& system = plain.front().content;
  if (!system.empty()) system += "\n\n";
  system += described(tools);
  for (ChatMessage& message : plain) {
    for (const ToolCall& call : std::exchange(message.tool_calls, {})) {
      if (!message.content.empty()) message.content += "\n";
      message.content += call_text(call);
    }
    if (message.role != "tool") continue;
    message.role = "user";
    message.content = fmt::format("<tool_response>\n{}\n</tool_response>", message.content);
  }
  return plain;
}

}  // namespace inferno
