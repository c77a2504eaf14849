// A conversation as a file.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/chat_session.h"

namespace inferno::cli {

using nlohmann::ordered_json;

std::string conversation_json(const std::vector<ChatMessage>& messages, std::string_view model) {
  ordered_json list = ordered_json::array();
  for (const ChatMessage& message : messages) {
    ordered_json one = {{"role", message.role}, {"content", message.content}};
    if (!message.reasoning_content.empty()) one["reasoning_content"] = message.reasoning_content;
    list.push_back(std::move(one));
  }
  const ordered_json whole = {{"model", model}, {"messages", std::move(list)}};
  // Half a character of a model's must not lose the rest.
  return whole.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::vector<ChatMessage> parse_conversation(std::string_view json, std::string_view file) {
  const auto whole = ordered_json::parse(json, nullptr, false);
  if (!whole.is_object() || !whole.contains("messages") || !whole["messages"].is_array()) {
    fail("\"{}\" is no conversation: an object with \"messages\" in JSON, as /save writes it", printable(file));
  }
  std::vector<ChatMessage> messages;
  for (const ordered_json& one : whole["messages"]) {
    const auto text = [&](const char* key) -> std::string {
      if (!one.is_object() || !one.contains(key)) return {};
      if (!one[key].is_string())
        fail("\"{}\": \"{}\" of message {} is no string", printable(file), key, messages.size());
      return one[key].get<std::string>();
    };
    ChatMessage message{
        .role = text("role"), .content = text("content"), .reasoning_content = text("reasoning_content")};
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      fail("\"{}\": the role of message {} is \"{}\", not system, user or assistant", printable(file), messages.size(),
           printable(message.role, 20));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace inferno::cli
