#include "engine/chat.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "engine/tool_request.h"
#include "engine/tools_as_text.h"
#include "template/known_templates.h"
#include "template/value_text.h"

namespace inferno {
namespace {

using nlohmann::ordered_json;

// Roles are chosen from a list, not typed: templates may make control tokens of them, as in "<|" + role + "|>".
constexpr std::array<std::string_view, 8> kRoles = {"system", "user",      "assistant", "tool",
                                                    "model",  "developer", "function",  "ipython"};

jinja::Value message_value(const ordered_json& message) {
  jinja::Value value = jinja::from_json(message);
  if (!value.is(jinja::Kind::dict)) return value;
  const jinja::Value* role = value.as_dict().find("role");
  const bool known =
      role != nullptr && role->is(jinja::Kind::string) && std::ranges::count(kRoles, role->as_view()) > 0;
  if (!known) return value;
  jinja::Dict dict;
  for (const auto& [key, held] : value.as_dict().entries) {
    dict.set(key, &held == role ? jinja::Value::control(held.as_view()) : held);
  }
  return jinja::Value::dict(std::move(dict));
}

jinja::Value messages_value(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) fail_usage("a chat needs at least one message");
  jinja::Sequence sequence;
  for (const ordered_json& message : messages) sequence.items.push_back(message_value(message));
  return jinja::Value::sequence(std::move(sequence));
}

ordered_json to_json(const ToolCall& call) {
  // Templates expect the arguments as an object, and take text as it is.
  ordered_json arguments = ordered_json::parse(call.arguments, nullptr, false);
  if (!arguments.is_object()) arguments = call.arguments;
  ordered_json out;
  if (!call.id.empty()) out["id"] = call.id;
  out["type"] = "function";
  out["function"] = {{"name", call.name}, {"arguments", std::move(arguments)}};
  return out;
}

ordered_json to_json(const ChatMessage& message) {
  ordered_json out = {{"role", message.role}, {"content", message.content}};
  if (!message.reasoning_content.empty()) out["reasoning_content"] = message.reasoning_content;
  for (const ToolCall& call : message.tool_calls) out["tool_calls"].push_back(to_json(call));
  if (!message.tool_call_id.empty()) out["tool_call_id"] = message.tool_call_id;
  if (!message.name.empty()) out["name"] = message.name;
  return out;
}

// The day, as templates want it that do not ask for the time themselves.
std::string today(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  if (localtime_r(&now, &parts) == nullptr) return {};
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

}  // namespace

std::string_view chat_template_of(const Tokenizer& tokenizer, std::string_view other) {
  if (other.empty() && !tokenizer.chat_template().empty()) return tokenizer.chat_template();
  if (other.empty()) {
    fail("this model has no chat template (tokenizer.chat_template): name one with `chat_template` (known: {})",
         known_template_names());
  }
  if (const std::string_view known = find_known_template(other); !known.empty()) return known;
  if (other.find('{') != std::string_view::npos) return other;
  const std::string_view meant = nearest_known_template(other);
  fail_usage("\"{}\" is no chat template{} (known: {})", printable(other, 40),
             meant.empty() ? "" : fmt::format(", did you mean {}?", meant), known_template_names());
}

ChatFormat::ChatFormat(std::string_view source, std::string_view bos_text, std::string_view eos_text)
    : template_(source), bos_text_(bos_text), eos_text_(eos_text) {}

ChatFormat ChatFormat::from_tokenizer(const Tokenizer& tokenizer, std::string_view other) {
  const auto text_of = [&](std::optional<int32_t> id) { return id ? tokenizer.piece(*id) : std::string_view(); };
  return {chat_template_of(tokenizer, other), text_of(tokenizer.bos()), text_of(tokenizer.eos())};
}

std::vector<PromptPiece> ChatFormat::render(std::span<const ChatMessage> messages, const ChatOptions& given) const {
  const ChatOptions options = shown_options(given);
  ordered_json variables = {{"messages", ordered_json::array()},
                            {"add_generation_prompt", options.add_generation_prompt}};
  std::vector<ChatMessage> plain;
  if (!options.tools.empty()) {
    ordered_json tools = ordered_json::parse(options.tools, nullptr, false);
    if (!tools.is_array()) fail_usage("tools must be an array in JSON");
    if (!template_.uses("tools")) messages = plain = tools_as_text(messages, tools);
    variables["tools"] = std::move(tools);
  }
  for (const ChatMessage& message : messages) variables["messages"].push_back(to_json(message));
  variables["date_string"] = today("%d %b %Y");
  variables["datetime"] = today("%b %d %Y");
  // Said in any case: there are templates that take nothing said for a no.
  variables["enable_thinking"] = options.enable_thinking;
  if (!options.enable_thinking) variables["thinking"] = false;
  return render(variables);
}

std::vector<PromptPiece> ChatFormat::render(const ordered_json& variables) const {
  if (!variables.is_object()) fail_usage("the variables of a chat template are an object");
  TemplateVariables values;
  values.set("tools", {});
  values.set("documents", {});
  values.set("add_generation_prompt", jinja::Value::boolean(true));
  for (const auto& [name, value] : variables.items()) {
    if (name != "messages") values.set(name, jinja::from_json(value));
  }
  values.set("messages", messages_value(variables.value("messages", ordered_json())));
  values.set("bos_token", jinja::Value::control(bos_text_));
  values.set("eos_token", jinja::Value::control(eos_text_));
  return template_.render(values);
}

bool ChatFormat::has_thinking_switch() const {
  return template_.uses("enable_thinking") || template_.uses("thinking");
}

}  // namespace inferno
