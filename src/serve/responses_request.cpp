// OpenAI's POST /v1/responses, for texts.
#include "base/text.h"
#include "serve/api_error.h"
#include "serve/dialect_requests.h"
#include "serve/request_fields.h"

namespace inferno::serve {
namespace {

void add_items(const Json& items, std::vector<ChatMessage>& messages) {
  size_t index = 0;
  for (const Json& item : items) {
    const std::string path = fmt::format("input[{}]", index++);
    if (!item.is_object()) fail_field(path, "is {}, must be an object", kind_of(item));
    const std::string* type = Fields(item, path + ".").string("type");
    if (type != nullptr && *type == "reasoning") continue;  // of an earlier answer
    if (type != nullptr && *type != "message") fail_unsupported(path, "of type \"" + printable(*type) + "\" ");
    messages.push_back(message_of(item, path, kResponseParts));
  }
}

void refuse_what_is_kept(const Fields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.find(name) != nullptr) fail_unsupported(name);
  }
  if (fields.boolean("background").value_or(false)) fail_unsupported("background");
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
