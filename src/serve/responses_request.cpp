// OpenAI's POST /v1/responses, for texts and calls of functions.
#include <utility>

#include "base/text.h"
#include "serve/api_error.h"
#include "serve/dialect_requests.h"
#include "serve/request_fields.h"

namespace inferno::serve {
namespace {

const std::string& text_field(const Fields& item, const char* name) {
  const std::string* text = item.string(name);
  if (text == nullptr) fail_field(item.path(name), "is missing");
  return *text;
}

// A call of an earlier answer belongs to its words, or to the call before it, unless something was thought in between.
void add_call(const Fields& item, std::string thought, std::vector<ChatMessage>& messages) {
  if (!thought.empty() || messages.empty() || messages.back().role != "assistant") {
    messages.push_back({.role = "assistant", .reasoning_content = std::move(thought)});
  }
  const std::string* arguments = item.string("arguments");
  messages.back().tool_calls.push_back({.id = text_field(item, "call_id"),
                                        .name = text_field(item, "name"),
                                        .arguments = arguments == nullptr ? "{}" : *arguments});
}

void add_result(const Fields& item, std::vector<ChatMessage>& messages) {
  ChatMessage result{.role = "tool", .tool_call_id = text_field(item, "call_id")};
  if (const Json* output = item.find("output")) {
    result.content = content_of(*output, item.path("output"), kResponseParts);
  }
  for (const ChatMessage& message : messages) {
    for (const ToolCall& call : message.tool_calls) {
      if (call.id == result.tool_call_id) result.name = call.name;
    }
  }
  messages.push_back(std::move(result));
}

void add_items(const Json& items, std::vector<ChatMessage>& messages) {
  std::string thought;  // before the answer that follows
  size_t index = 0;
  for (const Json& item : items) {
    const std::string path = fmt::format("input[{}]", index++);
    if (!item.is_object()) fail_field(path, "is {}, must be an object", kind_of(item));
    const Fields fields(item, path + ".");
    const std::string* type = fields.string("type");
    if (type != nullptr && *type == "reasoning") {
      const Json* content = fields.array("content");
      thought = content == nullptr ? "" : text_of_parts(*content, "reasoning_text", "text", fields.path("content"));
      continue;
    }
    const std::string before = std::exchange(thought, {});
    if (type != nullptr && *type == "function_call") {
      add_call(fields, before, messages);
      continue;
    }
    if (type != nullptr && *type == "function_call_output") {
      add_result(fields, messages);
      continue;
    }
    if (type != nullptr && *type != "message") fail_unsupported(path, "of type \"" + printable(*type) + "\" ");
    messages.push_back(message_of(item, path, kResponseParts));
    if (messages.back().role == "assistant" && !before.empty()) messages.back().reasoning_content = before;
  }
}

void refuse_what_is_kept(const Fields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.find(name) != nullptr) fail_unsupported(name);
  }
  if (fields.boolean("background").value_or(false)) fail_unsupported("background");
  const Json* tools = fields.array("tools");
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    if (!tool.is_object() || !tool.contains("type") || tool["type"] == "function") continue;
    fail_unsupported(fmt::format("tools[{}].type", i), "other than function ");
  }
}

}  // namespace

void parse_responses(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request) {
  refuse_what_is_kept(fields);
  Request& settings = request.settings;
  settings.sampling.temperature = 1;
  settings.sampling = sampling_of(fields, settings.sampling);
  settings.max_new_tokens = static_cast<int32_t>(fields.integer("max_output_tokens", 1, INT32_MAX).value_or(-1));
  settings.stop_strings = stops_of(fields, "stop", limits);
  request.split_thinking = true;

  std::vector<ChatMessage> messages;
  if (const std::string* instructions = fields.string("instructions")) {
    request.instructions = *instructions;
    messages.push_back({.role = "system", .content = *instructions});
  }
  const Json* input = fields.find("input");
  if (input == nullptr) fail_field("input", "is missing");
  if (input->is_string()) {
    messages.push_back({.role = "user", .content = input->get<std::string>()});
  } else if (input->is_array()) {
    check_message_count(*input, "input");
    add_items(*input, messages);
  } else {
    fail_field("input", "is {}, must be a string or an array of items", kind_of(*input));
  }
  if (messages.empty()) fail_field("input", "is empty, must have at least one message");
  ChatOptions options;
  options.enable_thinking = limits.thinks;
  if (const Json* reasoning = fields.object("reasoning")) {
    const std::string* effort = Fields(*reasoning, "reasoning.").string("effort");
    if (effort != nullptr) options.enable_thinking = *effort != "none";
  }
  request.prompts.emplace_back(std::move(messages), options);
}

}  // namespace inferno::serve
