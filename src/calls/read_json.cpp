// Calls as JSON. Brackets and strings are followed, values are given on as they are.
#include "calls/reader.h"

namespace inferno::calls {

using nlohmann::json;

void Reader::pass(std::string* text) {
  const char byte = text == nullptr ? input_.take() : keep();
  if (text == nullptr) {
    events_.arguments({&byte, 1});
  } else {
    text->push_back(byte);
  }
}

// A string with its quotes, of which the first is next.
Task<bool> Reader::quoted(std::string* text) {
  pass(text);
  bool escaped = false;
  for (;;) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd) co_return false;
    pass(text);
    if (next == '"' && !escaped) co_return true;
    escaped = next == '\\' && !escaped;
  }
}

// A number, true, false or null.
Task<bool> Reader::scalar(std::string* text) {
  constexpr std::string_view kEnds = " \t\r\n,]}";
  bool any = false;
  for (;;) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd || kEnds.find(static_cast<char>(next)) != std::string_view::npos) co_return any;
    pass(text);
    any = true;
  }
}

Task<bool> Reader::value(std::string* text) {
  const int first = co_await input_.next();
  if (first == '"') co_return co_await quoted(text);
  if (first != '{' && first != '[') co_return co_await scalar(text);
  size_t depth = 0;
  for (;;) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd) co_return false;
    if (next == '"') {
      INFERNO_TRY(quoted(text));
      continue;
    }
    pass(text);
    if (next == '{' || next == '[') ++depth;
    if ((next == '}' || next == ']') && --depth == 0) co_return true;
  }
}

Task<bool> Reader::json_string(std::string* decoded) {
  const int next = co_await input_.next();
  if (next != '"') co_return false;
  std::string raw;
  INFERNO_TRY(quoted(&raw));
  const json parsed = json::parse(raw, nullptr, false);
  if (!parsed.is_string()) co_return false;
  *decoded = parsed.get<std::string>();
  co_return true;
}

Task<bool> Reader::call_arguments() {
  const int next = co_await input_.next();
  if (next == '{') co_return co_await value(nullptr);
  std::string text;
  if (next == '"') {
    INFERNO_TRY(json_string(&text));
  } else {
    INFERNO_TRY(value(&text));
  }
  events_.arguments(text == "null" || text.empty() ? "{}" : text);
  forget();
  co_return true;
}

// "key": value. Other keys than those of a call (an id, a type) are skipped.
Task<bool> Reader::json_member() {
  std::string key;
  INFERNO_TRY(json_string(&key));
  co_await space();
  INFERNO_TRY(literal(":"));
  co_await space();
  if (key == "name" && name_.empty()) co_return co_await json_string(&name_);
  std::string skipped;
  if (key != "arguments" && key != "parameters") co_return co_await value(&skipped);
  if (has_begun_) co_return co_await value(&skipped);
  if (name_.empty()) {
    early_arguments_.clear();
    co_return co_await value(&early_arguments_);
  }
  const int next = co_await input_.next();
  if (next == ByteInput::kEnd) co_return false;
  begin_call(name_);
  has_begun_ = true;
  co_return co_await call_arguments();
}

void Reader::end_json_call() {
  if (!has_begun_) {
    begin_call(name_);
    const json early = json::parse(early_arguments_, nullptr, false);
    const std::string text = early.is_string() ? early.get<std::string>() : early_arguments_;
    events_.arguments(text.empty() || text == "null" ? "{}" : text);
  }
  events_.call_end();
  forget();
}

Task<bool> Reader::json_call() {
  name_.clear();
  early_arguments_.clear();
  has_begun_ = false;
  INFERNO_TRY(literal("{"));
  for (;;) {
    co_await space();
    INFERNO_TRY(json_member());
    co_await space();
    const int next = co_await input_.next();
    if (next != ',' && next != '}') co_return false;
    if (next == '}' && name_.empty()) co_return false;
    keep();
    if (next == '}') break;
  }
  end_json_call();
  co_return true;
}

Task<bool> Reader::json_list() {
  INFERNO_TRY(literal("["));
  for (;;) {
    co_await space();
    INFERNO_TRY(json_call());
    co_await space();
    const int next = co_await input_.next();
    if (next != ',' && next != ']') co_return false;
    keep();
    if (next == ']') co_return true;
  }
}

// Llama's: the answer is an object, or several with ; or , between them.
Task<bool> Reader::bare_objects() {
  co_await space();
  const int first = co_await input_.next();
  if (first == format_.open.front()) INFERNO_TRY(literal(format_.open));
  for (;;) {
    co_await space();
    INFERNO_TRY(json_call());
    co_await space();
    const int next = co_await input_.next();
    if (next == ';' || next == ',') keep();
  }
}

Task<bool> Reader::named_call() {
  const int next = co_await input_.next();
  if (next == '[') co_return co_await json_list();
  if (next == '{') co_return co_await json_call();
  std::string name;
  INFERNO_TRY(word(&name));
  co_await space();
  constexpr std::string_view kCallId = "[CALL_ID]";
  if (format_.format == Format::mistral_named || format_.format == Format::mistral_list) {
    // Some write an id between them, and some no separator.
    const int after = co_await input_.next();
    int found = 0;
    if (after != '{') found = co_await either(format_.name_end, kCallId);
    if (found < 0) co_return false;
    std::string id;
    if (found == 1) INFERNO_TRY(until(format_.name_end, &id));
  } else {
    INFERNO_TRY(literal(format_.name_end));
  }
  co_await space();
  // DeepSeek: the word before the separator is "function", the name follows it, and the object is in a code block.
  const int begin = co_await input_.next();
  const bool in_block = begin != '{';
  if (in_block) {
    name.clear();
    INFERNO_TRY(word(&name));
    co_await space();
    INFERNO_TRY(literal("```json"));
    co_await space();
    const int inside = co_await input_.next();
    if (inside != '{') co_return false;
  }
  begin_call(name);
  INFERNO_TRY(value(nullptr));
  events_.call_end();
  if (!in_block) co_return true;
  co_await space();
  co_return co_await literal("```");
}

}  // namespace inferno::calls
