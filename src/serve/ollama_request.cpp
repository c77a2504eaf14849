// Ollama's POST /api/chat and /api/generate, with its defaults.
#include "serve/api_error.h"
#include "serve/chat_prompt.h"
#include "serve/dialect_requests.h"
#include "serve/request_fields.h"
#include "serve/tool_fields.h"

namespace inferno::serve {
namespace {

void parse_options(const Fields& options, const CompletionLimits& limits, Request& settings) {
  settings.sampling = sampling_of(options, settings.sampling, true);
  // -1 and -2: as much as fits.
  const int64_t tokens = options.integer("num_predict", -2, INT32_MAX).value_or(-1);
  settings.max_new_tokens = static_cast<int32_t>(std::max<int64_t>(tokens, -1));
  settings.stop_strings = stops_of(options, "stop", limits);
}

// False switches it off; true and the levels some models know leave it on.
bool thinks(const Fields& fields, bool usual) {
  const Json* value = fields.find("think");
  if (value == nullptr) return usual;
  if (value->is_string()) return true;
  return *fields.boolean("think");
}

void refuse_images(const Fields& fields) {
  const Json* images = fields.array("images");
  if (images != nullptr && !images->empty()) fail_field("images", "cannot be read; this model reads text alone");
}

}  // namespace

void parse_ollama(const Fields& fields, std::string_view body, const CompletionLimits& limits,
                  CompletionRequest& request) {
  request.split_thinking = true;
  Request& settings = request.settings;
  settings.sampling.temperature = 0.8F;
  settings.sampling.top_k = 40;
  settings.sampling.top_p = 0.9F;
  settings.max_new_tokens = -1;
  if (const Json* options = fields.object("options")) parse_options(Fields(*options, "options."), limits, settings);
  refuse_images(fields);
  const ChatOptions options{.enable_thinking = thinks(fields, limits.thinks)};

  if (request.dialect == Dialect::ollama_chat) {
    const Json* messages = fields.array("messages");
    if (messages == nullptr || messages->empty()) return;  // asks for the model to be loaded
    std::vector<ChatMessage> read = messages_of(fields, "messages", kTextParts);
    order_arguments(body, read);
    request.prompts.emplace_back(std::move(read), options);
    request.prefill = take_prefill(fields, request.prompts.back());
    return;
  }
  if (fields.find("template") != nullptr && !fields.string("template")->empty()) fail_unsupported("template");
  const std::string* prompt = fields.string("prompt");
  if (prompt == nullptr || prompt->empty()) return;
  // A text to continue, for a model without a chat template, too.
  if (fields.boolean("raw").value_or(false) || !limits.has_template) {
    request.split_thinking = false;
    request.prompts.emplace_back(*prompt);
    return;
  }
  std::vector<ChatMessage> messages;
  const std::string* system = fields.string("system");
  if (system != nullptr && !system->empty()) messages.push_back({.role = "system", .content = *system});
  messages.push_back({.role = "user", .content = *prompt});
  request.prompts.emplace_back(std::move(messages), options);
}

}  // namespace inferno::serve
