#include "serve/completion_request.h"

#include <algorithm>
#include <array>

#include "serve/api_error.h"
#include "serve/chat_prompt.h"
#include "serve/constraint_fields.h"
#include "serve/dialect_requests.h"
#include "serve/json_fields.h"
#include "serve/request_fields.h"
#include "serve/tool_fields.h"

namespace inferno::serve {
namespace {

constexpr int32_t kDefaultTokens = 16;  // of /v1/completions, as in OpenAI's API
constexpr size_t kMaxStopIds = 64;

int32_t max_tokens_of(const Fields& fields, bool chat) {
  for (const char* name : {"max_completion_tokens", "max_tokens"}) {
    if (const auto value = fields.integer(name, 1, INT32_MAX)) return static_cast<int32_t>(*value);
  }
  return chat ? -1 : kDefaultTokens;
}

int32_t logprobs_of(const Fields& fields, bool chat) {
  if (!chat) return static_cast<int32_t>(fields.integer("logprobs", 0, kMaxTopLogprobs).value_or(-1));
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const std::optional<int64_t> top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !wanted) fail_field("top_logprobs", "needs `logprobs` to be true");
  return wanted ? static_cast<int32_t>(top.value_or(0)) : -1;
}

bool splits_thinking(const Fields& fields) {
  const std::string* format = fields.string("reasoning_format");
  if (format == nullptr) return true;
  constexpr std::array<std::string_view, 3> kKnown = {"none", "auto", "deepseek"};
  if (std::ranges::count(kKnown, *format) == 0) fail_field("reasoning_format", "must be none, auto or deepseek");
  return *format != "none";
}

// A string, an array of strings, of token ids, or of arrays of token ids.
std::vector<Prompt> prompts_of(const Fields& fields, const CompletionLimits& limits) {
  const auto ids = [](const Json& array) {
    std::vector<int32_t> read = ids_of(array, "prompt");
    if (read.empty()) fail_field("prompt", "has no token; give at least one");
    return read;
  };
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fail_field("prompt", "is missing");
  if (prompt->is_string()) return {Prompt(prompt->get<std::string>())};
  if (!prompt->is_array()) fail_field("prompt", "is {}, must be a string or an array", kind_of(*prompt));
  if (prompt->empty()) fail_field("prompt", "is empty");
  if (prompt->front().is_number()) return {ids(*prompt)};
  if (prompt->size() > static_cast<size_t>(limits.choices)) {
    fail_field("prompt", "has {} texts, must have at most {}", prompt->size(), limits.choices);
  }
  std::vector<Prompt> prompts;
  for (const Json& item : *prompt) {
    if (!item.is_string() && !item.is_array())
      fail_field("prompt", "holds {}, must hold strings or arrays of token ids", kind_of(item));
    prompts.push_back(item.is_string() ? Prompt(item.get<std::string>()) : Prompt(ids(item)));
  }
  return prompts;
}

void check_sizes(const CompletionRequest& request, const CompletionLimits& limits) {
  if (request.choices() > limits.choices) {
    fail_field("n", "times the prompts is {}, must be at most {}", request.choices(), limits.choices);
  }
  const Request& settings = request.settings;
  if (settings.top_logprobs < 0) return;
  const int32_t tokens =
      settings.max_new_tokens < 0 ? limits.context : std::min(settings.max_new_tokens, limits.context);
  if (int64_t{request.choices()} * tokens * (settings.top_logprobs + 1) > kMaxLogprobEntries) {
    const char* field = request.dialect == Dialect::openai_chat ? "top_logprobs"
                        : request.dialect == Dialect::native    ? "n_probs"
                                                                : "logprobs";
    fail_field(field, "of so many tokens are too many; ask for fewer, or for fewer tokens");
  }
}

// The text of OpenAI's `prediction`: a string, or parts of type text.
std::string prediction_of(const Fields& fields) {
  const Json* given = fields.object("prediction");
  if (given == nullptr) return "";
  const auto content = given->find("content");
  if (content != given->end() && content->is_string()) return content->get<std::string>();
  if (content == given->end() || !content->is_array())
    fail_field("prediction.content", "must be a text or parts of one");
  std::string text;
  for (const Json& part : *content) {
    const auto piece = part.is_object() ? part.find("text") : part.end();
    if (!part.is_object() || piece == part.end() || !piece->is_string()) {
      fail_field("prediction.content", "must hold parts with a `text`");
    }
    text += piece->get<std::string>();
  }
  return text;
}

// /v1/completions and /v1/chat/completions.
void parse_openai(const Fields& fields, const CompletionLimits& limits, CompletionRequest& request) {
  const bool chat = request.dialect == Dialect::openai_chat;
  if (const Json* options = fields.object("stream_options")) {
    request.include_usage = Fields(*options, "stream_options.").boolean("include_usage").value_or(false);
  }
  Request& settings = request.settings;
  settings.samples = static_cast<int32_t>(fields.integer("n", 1, limits.choices).value_or(1));
  settings.sampling.temperature = 1;
  settings.sampling = sampling_of(fields, settings.sampling);
  settings.max_new_tokens = max_tokens_of(fields, chat);
  settings.stop_strings = stops_of(fields, "stop", limits);
  if (const Json* ids = fields.array("stop_token_ids")) {
    if (ids->size() > kMaxStopIds) fail_field("stop_token_ids", "must have at most {} ids", kMaxStopIds);
    settings.stop_ids = ids_of(*ids, "stop_token_ids");
  }
  settings.bias = bias_of(fields);
  settings.top_logprobs = logprobs_of(fields, chat);
  settings.reuse_prefix = fields.boolean("cache_prompt").value_or(true);
  request.show_progress = fields.boolean("return_progress").value_or(false);
  settings.stop_at_end = !fields.boolean("ignore_eos").value_or(false);
  speculation_of(fields, request);
  request.prediction = prediction_of(fields);
  if (const auto best = fields.integer("best_of", 1, limits.choices); best && *best != settings.samples) {
    fail_field("best_of", "other than `n` is not supported");
  }
  if (chat) {
    request.split_thinking = splits_thinking(fields);
    request.prompts.push_back(chat_of(fields, limits));
    request.prefill = take_prefill(fields, request.prompts.back());
    return;
  }
  request.echo = fields.boolean("echo").value_or(false);
  if (request.echo && settings.top_logprobs >= 0) fail_unsupported("echo", "with `logprobs` ");
  request.prompts = prompts_of(fields, limits);
}

// An answer that must have a form begins with it: there is no thinking before it.
void add_constraint(ConstraintField given, CompletionRequest& request) {
  if (given.field.empty()) return;
  request.constraint = std::move(given.constraint);
  request.constraint_field = std::move(given.field);
  request.split_thinking = false;
  for (Prompt& prompt : request.prompts) {
    if (auto* chat = std::get_if<Prompt::Chat>(&prompt.content)) chat->options.enable_thinking = false;
  }
}

void refuse_tools(const Fields& fields) {
  const Json* tools = fields.array("tools");
  if (tools != nullptr && !tools->empty()) fail_unsupported("tools");
}

}  // namespace

// Tools are shown by the model's template. A call that is required is all of the answer: there is no thinking before
// it.
void add_tools(const Fields& fields, std::string_view body, CompletionRequest& request) {
  ToolRequest tools = tools_of(fields, body);
  if (tools.empty()) return;
  if (tools.required && !request.constraint_field.empty()) {
    fail_field("tool_choice", "asks for a call, `{}` for an answer of another form", request.constraint_field);
  }
  for (Prompt& prompt : request.prompts) {
    ChatOptions& options = std::get<Prompt::Chat>(prompt.content).options;
    options.tools = tools.json;
    if (tools.required) options.enable_thinking = false;
  }
  request.tools = std::move(tools);
}

bool wants_stream(const Json& body, Dialect dialect) {
  const bool is_ollama = dialect == Dialect::ollama_chat || dialect == Dialect::ollama_generate;
  return Fields(body).boolean("stream").value_or(is_ollama);
}

CompletionRequest parse_completion(const Json& body, std::string_view text, Dialect dialect,
                                   const CompletionLimits& limits, uint64_t seed) {
  const Fields fields(body);
  refuse_unsupported(fields);
  CompletionRequest request;
  request.dialect = dialect;
  request.stream = wants_stream(body, dialect);
  request.settings.sampling.seed = seed;
  request.show_prompt = fields.boolean("verbose").value_or(false);
  switch (dialect) {
    case Dialect::openai_text:
    case Dialect::openai_chat:
      parse_openai(fields, limits, request);
      break;
    case Dialect::native:
      parse_native(fields, limits, request);
      break;
    case Dialect::anthropic:
      parse_anthropic(fields, text, limits, request);
      break;
    case Dialect::responses:
      parse_responses(fields, limits, request);
      break;
    case Dialect::ollama_generate:
    case Dialect::ollama_chat:
      parse_ollama(fields, text, limits, request);
      break;
  }
  check_sizes(request, limits);
  add_constraint(constraint_of(fields, text), request);
  if (is_chat(dialect) && dialect != Dialect::ollama_generate) {
    add_tools(fields, text, request);
  } else {
    refuse_tools(fields);
  }
  return request;
}

}  // namespace inferno::serve
