#include "serve/completion_request.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text.h"
#include "serve/api_error.h"
#include "serve/json_fields.h"

namespace inferno::serve {
namespace {

constexpr int32_t kDefaultTokens = 16;  // of /v1/completions, as in OpenAI's API
constexpr double kMaxTemperature = 100;
constexpr double kMaxBias = 100;

// What would change the answer and is not there is refused: ignoring it silently would be a wrong answer.
void refuse_unsupported(const Fields& fields) {
  constexpr std::array kUnsupported = {"functions",          "function_call", "grammar",       "guided_json",
                                       "guided_regex",       "json_schema",   "guided_choice", "guided_grammar",
                                       "structured_outputs", "suffix"};
  for (const char* name : kUnsupported) {
    const Json* value = fields.find(name);
    const bool is_empty = value != nullptr && value->is_string() && value->get_ref<const std::string&>().empty();
    if (value != nullptr && !is_empty) fail_field(name, "is not supported yet");
  }
  const Json* tools = fields.array("tools");
  if (tools != nullptr && !tools->empty()) fail_field("tools", "is not supported yet");
  if (const Json* format = fields.object("response_format")) {
    const std::string* type = Fields(*format, "response_format.").string("type");
    if (type == nullptr || *type != "text")
      fail_field("response_format", "other than {{\"type\":\"text\"}} is not supported yet");
  }
}

void check_model(const Fields& fields, const std::string& served) {
  const std::string* model = fields.string("model");
  if (model == nullptr || model->empty() || *model == served) return;
  throw ApiError(404, fmt::format("there is no model \"{}\" here; this server has \"{}\"", printable(*model), served),
                 "model", "model_not_found");
}

SamplingSettings sampling_of(const Fields& fields, uint64_t seed) {
  constexpr double kMost = std::numeric_limits<float>::max();
  SamplingSettings s;
  s.temperature = static_cast<float>(fields.number("temperature", 0, kMaxTemperature).value_or(1));
  s.top_p = static_cast<float>(fields.number("top_p", 0, 1).value_or(1));
  s.min_p = static_cast<float>(fields.number("min_p", 0, 1).value_or(0));
  // -1 is off, too: clients of other servers send it.
  s.top_k = static_cast<int32_t>(std::max<int64_t>(0, fields.integer("top_k", -1, INT32_MAX).value_or(0)));
  s.presence_penalty = static_cast<float>(fields.number("presence_penalty", -2, 2).value_or(0));
  s.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", -2, 2).value_or(0));
  for (const char* name : {"repeat_penalty", "repetition_penalty"}) {
    if (const auto value = fields.number(name, 1e-3, kMost)) s.repeat_penalty = static_cast<float>(*value);
  }
  s.penalty_window = static_cast<int32_t>(fields.integer("repeat_last_n", -1, INT32_MAX).value_or(s.penalty_window));
  s.seed = seed;
  if (const Json* value = fields.find("seed")) {
    if (value->is_number_unsigned()) {
      s.seed = value->get<uint64_t>();
    } else {
      s.seed = static_cast<uint64_t>(*fields.integer("seed", INT64_MIN, INT64_MAX));
    }
  }
  return s;
}

int32_t max_tokens_of(const Fields& fields, bool chat) {
  for (const char* name : {"max_completion_tokens", "max_tokens"}) {
    if (const auto value = fields.integer(name, 1, INT32_MAX)) return static_cast<int32_t>(*value);
  }
  return chat ? -1 : kDefaultTokens;
}

std::vector<std::string> stops_of(const Fields& fields, const CompletionLimits& limits) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return {};
  if (!value->is_string() && !value->is_array()) {
    fail_field("stop", "is {}, must be a string or an array of strings", kind_of(*value));
  }
  std::vector<std::string> stops;
  const auto add = [&](const Json& item) {
    if (!item.is_string()) fail_field("stop", "holds {}, must hold strings", kind_of(item));
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty()) fail_field("stop", "holds an empty string, which would stop before the first character");
    if (text.size() > static_cast<size_t>(limits.stop_bytes)) {
      fail_field("stop", "holds a string of {} bytes, must be at most {}", text.size(), limits.stop_bytes);
    }
    stops.push_back(text);
  };
  if (value->is_string()) {
    add(*value);
  } else {
    if (value->size() > static_cast<size_t>(limits.stops)) {
      fail_field("stop", "has {} strings, must have at most {}", value->size(), limits.stops);
    }
    for (const Json& item : *value) add(item);
  }
  return stops;
}

std::vector<LogitBias> bias_of(const Fields& fields) {
  const Json* object = fields.object("logit_bias");
  if (object == nullptr) return {};
  if (object->size() > static_cast<size_t>(kMaxLogitBias)) {
    fail_field("logit_bias", "has {} entries, must have at most {}", object->size(), kMaxLogitBias);
  }
  const Fields entries(*object, "logit_bias.");
  std::vector<LogitBias> bias;
  for (const auto& [key, value] : object->items()) {
    const std::optional<int64_t> id = parse_int(key);
    if (!id || *id < 0 || *id > INT32_MAX)
      fail_field("logit_bias", "has the key \"{}\", must be token ids", printable(key));
    const std::optional<double> number = entries.number(key.c_str(), -kMaxBias, kMaxBias);
    if (number) bias.push_back({.id = static_cast<int32_t>(*id), .bias = static_cast<float>(*number)});
  }
  return bias;
}

int32_t logprobs_of(const Fields& fields, bool chat) {
  if (!chat) return static_cast<int32_t>(fields.integer("logprobs", 0, kMaxTopLogprobs).value_or(-1));
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const std::optional<int64_t> top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !wanted) fail_field("top_logprobs", "needs `logprobs` to be true");
  return wanted ? static_cast<int32_t>(top.value_or(0)) : -1;
}

// A string, or an array of parts of which only texts can be read.
std::string content_of(const Json& message, const std::string& path) {
  const Fields fields(message, path + ".");
  const Json* content = fields.find("content");
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array())
    fail_field(fields.path("content"), "is {}, must be a string or an array of parts", kind_of(*content));
  std::string text;
  for (const Json& part : *content) {
    if (!part.is_object()) fail_field(fields.path("content"), "holds {}, must hold objects", kind_of(part));
    const Fields of_part(part, fields.path("content."));
    const std::string* type = of_part.string("type");
    if (type == nullptr || *type != "text")
      fail_field(fields.path("content"), "holds a part that is no text; this model reads text alone");
    const std::string* piece = of_part.string("text");
    if (piece == nullptr) fail_field(of_part.path("text"), "is missing");
    text += *piece;
  }
  return text;
}

ChatMessage message_of(const Json& message, const std::string& path) {
  if (!message.is_object()) fail_field(path, "is {}, must be an object", kind_of(message));
  const Fields fields(message, path + ".");
  const std::string* role = fields.string("role");
  if (role == nullptr) fail_field(fields.path("role"), "is missing");
  if (*role == "tool" || *role == "function") fail_field(fields.path("role"), "\"{}\" is not supported yet", *role);
  const Json* calls = fields.find("tool_calls");
  if (calls != nullptr && !(calls->is_array() && calls->empty()))
    fail_field(fields.path("tool_calls"), "is not supported yet");
  // OpenAI's newer name for the same role.
  const std::string name = *role == "developer" ? "system" : *role;
  if (name != "system" && name != "user" && name != "assistant") {
    fail_field(fields.path("role"), "is \"{}\", must be system, developer, user or assistant", printable(*role));
  }
  if (name != "assistant" && fields.find("content") == nullptr) fail_field(fields.path("content"), "is missing");
  return {.role = name, .content = content_of(message, path)};
}

Prompt chat_of(const Fields& fields) {
  const Json* messages = fields.array("messages");
  if (messages == nullptr) fail_field("messages", "is missing");
  if (messages->empty()) fail_field("messages", "is empty, must have at least one message");
  std::vector<ChatMessage> read;
  for (const Json& message : *messages) read.push_back(message_of(message, fmt::format("messages[{}]", read.size())));
  ChatOptions options;
  if (const Json* arguments = fields.object("chat_template_kwargs")) {
    options.enable_thinking = Fields(*arguments, "chat_template_kwargs.").boolean("enable_thinking").value_or(true);
  }
  return {std::move(read), options};
}

Prompt ids_of(const Json& array) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& item : array) {
    const std::optional<int64_t> id = item.is_number() ? integer_of(item) : std::nullopt;
    if (!id || *id < 0 || *id > INT32_MAX) fail_field("prompt", "holds something that is no token id");
    ids.push_back(static_cast<int32_t>(*id));
  }
  if (ids.empty()) fail_field("prompt", "has no token; give at least one");
  return ids;
}

// A string, an array of strings, of token ids, or of arrays of token ids.
std::vector<Prompt> prompts_of(const Fields& fields, const CompletionLimits& limits) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fail_field("prompt", "is missing");
  if (prompt->is_string()) return {Prompt(prompt->get<std::string>())};
  if (!prompt->is_array()) fail_field("prompt", "is {}, must be a string or an array", kind_of(*prompt));
  if (prompt->empty()) fail_field("prompt", "is empty");
  if (prompt->front().is_number()) return {ids_of(*prompt)};
  if (prompt->size() > static_cast<size_t>(limits.choices)) {
    fail_field("prompt", "has {} texts, must have at most {}", prompt->size(), limits.choices);
  }
  std::vector<Prompt> prompts;
  for (const Json& item : *prompt) {
    if (!item.is_string() && !item.is_array())
      fail_field("prompt", "holds {}, must hold strings or arrays of token ids", kind_of(item));
    prompts.push_back(item.is_string() ? Prompt(item.get<std::string>()) : ids_of(item));
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
    fail_field(request.chat ? "top_logprobs" : "logprobs",
               "of so many tokens are too many; ask for fewer, or for fewer tokens");
  }
}

}  // namespace

CompletionRequest parse_completion(std::string_view body, bool chat, const CompletionLimits& limits, uint64_t seed) {
  const Json parsed = parse_object(body);
  const Fields fields(parsed);
  check_model(fields, limits.model);
  refuse_unsupported(fields);

  CompletionRequest request;
  request.chat = chat;
  request.stream = fields.boolean("stream").value_or(false);
  if (const Json* options = fields.object("stream_options")) {
    request.include_usage = Fields(*options, "stream_options.").boolean("include_usage").value_or(false);
  }
  Request& settings = request.settings;
  settings.samples = static_cast<int32_t>(fields.integer("n", 1, limits.choices).value_or(1));
  settings.sampling = sampling_of(fields, seed);
  settings.max_new_tokens = max_tokens_of(fields, chat);
  settings.stop_strings = stops_of(fields, limits);
  settings.bias = bias_of(fields);
  settings.top_logprobs = logprobs_of(fields, chat);
  settings.reuse_prefix = fields.boolean("cache_prompt").value_or(true);
  settings.stop_at_end = !fields.boolean("ignore_eos").value_or(false);
  if (const auto best = fields.integer("best_of", 1, limits.choices); best && *best != settings.samples) {
    fail_field("best_of", "other than `n` is not supported");
  }
  if (chat) {
    request.prompts.push_back(chat_of(fields));
  } else {
    request.echo = fields.boolean("echo").value_or(false);
    if (request.echo && settings.top_logprobs >= 0) fail_field("echo", "with `logprobs` is not supported yet");
    request.prompts = prompts_of(fields, limits);
  }
  check_sizes(request, limits);
  return request;
}

}  // namespace inferno::serve
