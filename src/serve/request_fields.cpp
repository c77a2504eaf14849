#include "serve/request_fields.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text.h"
#include "serve/api_error.h"
#include "serve/tool_fields.h"

namespace inferno::serve {
namespace {

constexpr double kMaxTemperature = 100;
constexpr double kMaxBias = 100;
constexpr size_t kMaxMessages = 16'384;
constexpr size_t kMaxBiasText = 256;

void add_stop(const Json& item, const char* name, const CompletionLimits& limits, std::vector<std::string>& stops) {
  if (!item.is_string()) fail_field(name, "holds {}, must hold strings", kind_of(item));
  const auto& text = item.get_ref<const std::string&>();
  if (text.empty()) fail_field(name, "holds an empty string, which would stop before the first character");
  if (text.size() > static_cast<size_t>(limits.stop_bytes)) {
    fail_field(name, "holds a string of {} bytes, must be at most {}", text.size(), limits.stop_bytes);
  }
  stops.push_back(text);
}

LogitBias bias_entry(int64_t id, const Json& value) {
  if (id < 0 || id > INT32_MAX) fail_field("logit_bias", "names the token {}, must be token ids", id);
  // llama-server's way to say "never".
  if (value.is_boolean() && !value.get<bool>()) return {.id = static_cast<int32_t>(id), .bias = -kMaxBias};
  if (!value.is_number()) fail_field("logit_bias", "holds {}, must hold numbers", kind_of(value));
  const auto number = value.get<double>();
  if (!(number >= -kMaxBias && number <= kMaxBias)) {
    fail_field("logit_bias", "holds {}, must hold -{} to {}", number, kMaxBias, kMaxBias);
  }
  return {.id = static_cast<int32_t>(id), .bias = static_cast<float>(number)};
}

}  // namespace

std::string model_of(const Fields& fields) {
  const std::string* model = fields.string("model");
  return model == nullptr ? std::string() : *model;
}

void refuse_unsupported(const Fields& fields) {
  constexpr std::array kUnsupported = {"functions", "function_call", "suffix"};
  for (const char* name : kUnsupported) {
    const Json* value = fields.find(name);
    const bool is_empty = value != nullptr && value->is_string() && value->get_ref<const std::string&>().empty();
    if (value != nullptr && !is_empty) fail_unsupported(name);
  }
}

SamplingSettings sampling_of(const Fields& fields, SamplingSettings s, bool negative_seed_is_random) {
  constexpr double kMost = std::numeric_limits<float>::max();
  const auto set = [&](const char* name, double least, double most, float& value) {
    if (const auto given = fields.number(name, least, most)) value = static_cast<float>(*given);
  };
  set("temperature", 0, kMaxTemperature, s.temperature);
  set("top_p", 0, 1, s.top_p);
  set("min_p", 0, 1, s.min_p);
  // -1 is off, too: clients of other servers send it.
  if (const auto top_k = fields.integer("top_k", -1, INT32_MAX)) {
    s.top_k = static_cast<int32_t>(std::max<int64_t>(0, *top_k));
  }
  set("presence_penalty", -2, 2, s.presence_penalty);
  set("frequency_penalty", -2, 2, s.frequency_penalty);
  set("repeat_penalty", 1e-3, kMost, s.repeat_penalty);
  set("repetition_penalty", 1e-3, kMost, s.repeat_penalty);
  s.penalty_window = static_cast<int32_t>(fields.integer("repeat_last_n", -1, INT32_MAX).value_or(s.penalty_window));
  if (const Json* value = fields.find("seed")) {
    if (value->is_number_unsigned()) {
      s.seed = value->get<uint64_t>();
    } else {
      const int64_t given = *fields.integer("seed", INT64_MIN, INT64_MAX);
      if (given >= 0 || !negative_seed_is_random) s.seed = static_cast<uint64_t>(given);
    }
  }
  return s;
}

std::vector<std::string> stops_of(const Fields& fields, const char* name, const CompletionLimits& limits) {
  const Json* value = fields.find(name);
  if (value == nullptr) return {};
  if (!value->is_string() && !value->is_array()) {
    fail_field(fields.path(name), "is {}, must be a string or an array of strings", kind_of(*value));
  }
  std::vector<std::string> stops;
  if (value->is_string()) {
    add_stop(*value, name, limits, stops);
  } else {
    if (value->size() > static_cast<size_t>(limits.stops)) {
      fail_field(fields.path(name), "has {} strings, must have at most {}", value->size(), limits.stops);
    }
    for (const Json& item : *value) add_stop(item, name, limits, stops);
  }
  return stops;
}

std::vector<LogitBias> bias_of(const Fields& fields, std::vector<TextBias>* texts) {
  const Json* given = fields.find("logit_bias");
  if (given == nullptr) return {};
  if (!given->is_object() && !given->is_array()) {
    fail_field("logit_bias", "is {}, must be an object or an array of pairs", kind_of(*given));
  }
  if (given->size() > static_cast<size_t>(kMaxLogitBias)) {
    fail_field("logit_bias", "has {} entries, must have at most {}", given->size(), kMaxLogitBias);
  }
  std::vector<LogitBias> bias;
  const auto add_text = [&](const std::string& text, const Json& value) {
    if (text.size() > kMaxBiasText)
      fail_field("logit_bias", "has a text of {} bytes, must be at most {}", text.size(), kMaxBiasText);
    texts->push_back({.text = text, .bias = bias_entry(0, value).bias});
  };
  for (const auto& [key, value] : given->items()) {
    if (given->is_object()) {
      const std::optional<int64_t> id = parse_int(key);
      if (!id && texts != nullptr) {
        if (!value.is_null()) add_text(key, value);
        continue;
      }
      if (!id) fail_field("logit_bias", "has the key \"{}\", must be token ids", printable(key));
      if (!value.is_null()) bias.push_back(bias_entry(*id, value));
      continue;
    }
    if (texts != nullptr && value.is_array() && value.size() == 2 && value[0].is_string()) {
      add_text(value[0].get_ref<const std::string&>(), value[1]);
      continue;
    }
    const bool is_pair = value.is_array() && value.size() == 2 && value[0].is_number();
    const std::optional<int64_t> id = is_pair ? integer_of(value[0]) : std::nullopt;
    if (!id) fail_field("logit_bias", "holds something that is no pair of a token id and a number");
    bias.push_back(bias_entry(*id, value[1]));
  }
  return bias;
}

std::vector<int32_t> ids_of(const Json& array, const std::string& field) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& item : array) {
    const std::optional<int64_t> id = item.is_number() ? integer_of(item) : std::nullopt;
    if (!id || *id < 0 || *id > INT32_MAX) fail_field(field, "holds something that is no token id");
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

// ---- conversations

namespace {

// What was thought before an answer: a field, by the names clients have for it, or Anthropic's parts. Templates decide
// what becomes of it.
std::string thinking_of(const Fields& message) {
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    const std::string* text = message.string(name);
    if (text != nullptr && !text->empty()) return *text;
  }
  const Json* content = message.find("content");
  return content == nullptr ? std::string() : text_of_parts(*content, "thinking", "thinking", message.path("content"));
}

}  // namespace

std::string content_of(const Json& content, const std::string& path, std::span<const std::string_view> text_types) {
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) fail_field(path, "is {}, must be a string or an array of parts", kind_of(content));
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object()) fail_field(path, "holds {}, must hold objects", kind_of(part));
    const Fields of_part(part, path + ".");
    const std::string* type = of_part.string("type");
    // thinking_of() reads the first, and nobody the second.
    if (type != nullptr && (*type == "thinking" || *type == "redacted_thinking")) continue;
    if (type == nullptr || std::ranges::count(text_types, *type) == 0)
      fail_field(path, "holds a part that is no text; this model reads text alone");
    const std::string* piece = of_part.string("text");
    if (piece == nullptr) fail_field(of_part.path("text"), "is missing");
    // Parts are paragraphs: nobody's words run into another's.
    if (!text.empty()) text += '\n';
    text += *piece;
  }
  return text;
}

std::string text_of_parts(const Json& parts, std::string_view type, const char* field, const std::string& path) {
  std::string all;
  if (!parts.is_array()) return all;
  for (const Json& part : parts) {
    if (!part.is_object() || !part.contains("type") || part["type"] != type) continue;
    const std::string* text = Fields(part, path + ".").string(field);
    if (text == nullptr || text->empty()) continue;
    if (!all.empty()) all += '\n';
    all += *text;
  }
  return all;
}

ChatMessage message_of(const Json& message, const std::string& path, std::span<const std::string_view> text_types) {
  if (!message.is_object()) fail_field(path, "is {}, must be an object", kind_of(message));
  const Fields fields(message, path + ".");
  const std::string* role = fields.string("role");
  if (role == nullptr) fail_field(fields.path("role"), "is missing");
  const Json* images = fields.find("images");
  if (images != nullptr && !(images->is_array() && images->empty()))
    fail_field(fields.path("images"), "cannot be read; this model reads text alone");
  // OpenAI's newer name for the same role.
  const std::string name = *role == "developer" ? "system" : *role == "function" ? "tool" : *role;
  if (name != "system" && name != "user" && name != "assistant" && name != "tool") {
    fail_field(fields.path("role"), "is \"{}\", must be system, developer, user, assistant or tool", printable(*role));
  }
  const Json* content = fields.find("content");
  if (name != "assistant" && content == nullptr) fail_field(fields.path("content"), "is missing");
  const auto text = [&](const char* field) {
    const std::string* value = fields.string(field);
    return value == nullptr ? std::string() : *value;
  };
  ChatMessage read{.role = name};
  if (content != nullptr) read.content = content_of(*content, fields.path("content"), text_types);
  if (name == "assistant") {
    read.reasoning_content = thinking_of(fields);
    read.tool_calls = tool_calls_of(fields);
  }
  if (name != "tool") return read;
  read.tool_call_id = text("tool_call_id");
  read.name = text("name").empty() ? text("tool_name") : text("name");
  return read;
}

void check_message_count(const Json& messages, const char* name) {
  if (messages.size() <= kMaxMessages) return;
  fail_field(name, "has {} messages, must have at most {}", messages.size(), kMaxMessages);
}

std::vector<ChatMessage> messages_of(const Fields& fields, const char* name,
                                     std::span<const std::string_view> text_types) {
  const Json* messages = fields.array(name);
  if (messages == nullptr) fail_field(name, "is missing");
  if (messages->empty()) fail_field(name, "is empty, must have at least one message");
  check_message_count(*messages, name);
  std::vector<ChatMessage> read;
  for (const Json& message : *messages) {
    read.push_back(message_of(message, fmt::format("{}[{}]", name, read.size()), text_types));
  }
  return read;
}

Prompt chat_of(const Fields& fields, const CompletionLimits& limits) {
  ChatOptions options;
  options.enable_thinking = limits.thinks;
  options.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  const std::string* effort = fields.string("reasoning_effort");
  if (effort != nullptr) options.enable_thinking = *effort != "none";
  if (const Json* arguments = fields.object("chat_template_kwargs")) {
    const Fields of_arguments(*arguments, "chat_template_kwargs.");
    options.enable_thinking = of_arguments.boolean("enable_thinking").value_or(options.enable_thinking);
  }
  return {messages_of(fields, "messages", kTextParts), options};
}

}  // namespace inferno::serve
