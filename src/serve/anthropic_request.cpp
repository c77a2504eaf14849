// Anthropic's POST /v1/messages.
#include "base/text.h"
#include "serve/api_error.h"
#include "serve/chat_prompt.h"
#include "serve/dialect_requests.h"
#include "serve/request_fields.h"

namespace inferno::serve {

Prompt anthropic_prompt(const Fields& fields, const CompletionLimits& limits) {
  std::vector<ChatMessage> messages;
  if (const Json* system = fields.find("system")) {
    messages.push_back({.role = "system", .content = content_of(*system, "system", kTextParts)});
  }
  for (ChatMessage& message : messages_of(fields, "messages", kTextParts)) messages.push_back(std::move(message));
  ChatOptions options;
  options.enable_thinking = limits.thinks;
  if (const Json* thinking = fields.object("thinking")) {
    const std::string* type = Fields(*thinking, "thinking.").string("type");
    options.enable_thinking = type == nullptr || *type != "disabled";
  }
  return {std::move(messages), options};
}

void parse_anthropic(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request) {
  Request& settings = request.settings;
  settings.sampling.temperature = 1;
  settings.sampling = sampling_of(fields, settings.sampling);
  const std::optional<int64_t> tokens = fields.integer("max_tokens", 1, INT32_MAX);
  if (!tokens) fail_field("max_tokens", "is missing");
  settings.max_new_tokens = static_cast<int32_t>(*tokens);
  settings.stop_strings = stops_of(fields, "stop_sequences", limits);
  request.split_thinking = true;
  request.prompts.push_back(anthropic_prompt(fields, limits));
  request.prefill = take_prefill(fields, request.prompts.back());
}

}  // namespace inferno::serve
