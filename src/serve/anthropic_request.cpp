// Anthropic's POST /v1/messages.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "serve/api_error.h"
#include "serve/chat_prompt.h"
#include "serve/dialect_requests.h"
#include "serve/request_fields.h"

namespace inferno::serve {
namespace {

const std::string& text_field(const Fields& part, const char* name) {
  const std::string* text = part.string(name);
  if (text == nullptr) fail_field(part.path(name), "is missing");
  return *text;
}

// One message of theirs: calls of tools are parts of the assistant's words, and results parts of the user's, which are
// messages of their own here.
class MessageParts {
 public:
  MessageParts(const Json& message, std::string path, const nlohmann::ordered_json& ordered,
               std::vector<ChatMessage>& messages)
      : message_(message), path_(std::move(path)), ordered_(ordered), messages_(messages) {}

  void read() {
    const Json& content = message_["content"];
    Json words = message_;
    words["content"] = Json::array();
    for (size_t i = 0; i < content.size(); ++i) {
      const Json& part = content[i];
      const std::string type = part.is_object() && part.contains("type") && part["type"].is_string()
                                   ? part["type"].get<std::string>()
                                   : std::string();
      const Fields fields(part, fmt::format("{}.content[{}].", path_, i));
      if (type == "tool_use") {
        add_call(fields, ordered_["content"][i]);
      } else if (type == "tool_result") {
        add_result(fields);
      } else {
        words["content"].push_back(part);
      }
    }
    if (words["content"].empty() && calls_.empty()) return;
    messages_.push_back(message_of(words, path_, kTextParts));
    messages_.back().tool_calls = std::move(calls_);
  }

 private:
  void add_call(const Fields& part, const nlohmann::ordered_json& ordered) {
    const Json* input = part.object("input");
    calls_.push_back({.id = text_field(part, "id"),
                      .name = text_field(part, "name"),
                      .arguments = input == nullptr ? "{}" : ordered["input"].dump()});
  }

  void add_result(const Fields& part) {
    ChatMessage result{.role = "tool", .tool_call_id = text_field(part, "tool_use_id")};
    if (const Json* content = part.find("content")) {
      result.content = content_of(*content, part.path("content"), kTextParts);
    }
    // Templates know results by the tool's name.
    for (const ChatMessage& message : messages_) {
      for (const ToolCall& call : message.tool_calls) {
        if (call.id == result.tool_call_id) result.name = call.name;
      }
    }
    messages_.push_back(std::move(result));
  }

  const Json& message_;
  std::string path_;
  const nlohmann::ordered_json& ordered_;
  std::vector<ChatMessage>& messages_;
  std::vector<ToolCall> calls_;
};

bool has_tools(const Json& message) {
  if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) return false;
  return std::ranges::any_of(message["content"], [](const Json& part) {
    return part.is_object() && part.contains("type") && (part["type"] == "tool_use" || part["type"] == "tool_result");
  });
}

void add_messages(const Fields& fields, std::string_view body, std::vector<ChatMessage>& messages) {
  const Json* given = fields.array("messages");
  if (given == nullptr || std::ranges::none_of(*given, has_tools)) {
    for (ChatMessage& message : messages_of(fields, "messages", kTextParts)) messages.push_back(std::move(message));
    return;
  }
  check_message_count(*given, "messages");
  const nlohmann::ordered_json ordered = ordered_field(body, "messages");
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if (has_tools((*given)[i])) {
      MessageParts((*given)[i], path, ordered[i], messages).read();
    } else {
      messages.push_back(message_of((*given)[i], path, kTextParts));
    }
  }
}

}  // namespace

Prompt anthropic_prompt(const Fields& fields, std::string_view body, const CompletionLimits& limits) {
  std::vector<ChatMessage> messages;
  if (const Json* system = fields.find("system")) {
    messages.push_back({.role = "system", .content = content_of(*system, "system", kTextParts)});
  }
  add_messages(fields, body, messages);
  ChatOptions options;
  options.enable_thinking = limits.thinks;
  if (const Json* thinking = fields.object("thinking")) {
    const std::string* type = Fields(*thinking, "thinking.").string("type");
    options.enable_thinking = type == nullptr || *type != "disabled";
  }
  return {std::move(messages), options};
}

void parse_anthropic(const Fields& fields, std::string_view body, const CompletionLimits& limits,
                     CompletionRequest& request) {
  Request& settings = request.settings;
  settings.sampling.temperature = 1;
  settings.sampling = sampling_of(fields, settings.sampling);
  const std::optional<int64_t> tokens = fields.integer("max_tokens", 1, INT32_MAX);
  if (!tokens) fail_field("max_tokens", "is missing");
  settings.max_new_tokens = static_cast<int32_t>(*tokens);
  settings.stop_strings = stops_of(fields, "stop_sequences", limits);
  request.split_thinking = true;
  request.prompts.push_back(anthropic_prompt(fields, body, limits));
  request.prefill = take_prefill(fields, request.prompts.back());
}

}  // namespace inferno::serve
