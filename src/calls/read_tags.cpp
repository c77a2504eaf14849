// Calls as tags, one per argument. Their values are text: the tool's schema says which of them are strings.
#include <fmt/core.h>

#include <algorithm>

#include "calls/reader.h"

namespace inferno::calls {
namespace {

using nlohmann::ordered_json;

// As it is inside the quotes of a JSON string.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += c;
    }
  }
  return out;
}

// One line end at each side belongs to the tags.
std::string_view without_line_ends(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

const TagNames& Reader::tags() const {
  return format_.syntax == Syntax::tags ? format_.tags : spec_of(Format::qwen_tags).tags;
}

bool Reader::takes_text(std::string_view tool, std::string_view argument) const {
  if (tools_ == nullptr) return false;
  const auto found = std::ranges::find(*tools_, tool, &Tool::name);
  if (found == tools_->end() || !found->parameters.is_object()) return false;
  const auto properties = found->parameters.find("properties");
  if (properties == found->parameters.end() || !properties->is_object()) return false;
  const auto property = properties->find(argument);
  return property != properties->end() && property->is_object() && property->value("type", ordered_json()) == "string";
}

// After the outer tag, up to its end: one call, or several; or JSON, which models that know both write now and then.
Task<bool> Reader::tagged_calls() {
  const int next = co_await input_.next();
  if (next == '{') {
    INFERNO_TRY(json_call());
    co_await space();
    co_return co_await literal(format_.close);
  }
  if (tags().call_open.empty()) co_return co_await tagged_call();
  INFERNO_TRY(literal(tags().call_open));
  for (;;) {
    INFERNO_TRY(tagged_call());
    co_await space();
    const int found = co_await either(tags().call_open, format_.close);
    if (found != 0) co_return found == 1;
  }
}

Task<bool> Reader::tagged_call() {
  std::string name;
  INFERNO_TRY(word(&name));
  INFERNO_TRY(literal(tags().name_end));
  const std::string_view close = tags().call_close.empty() ? format_.close : tags().call_close;
  bool is_first = true;
  for (;; is_first = false) {
    co_await space();
    const int found = co_await either(tags().key_open, close);
    if (found < 0) co_return false;
    if (is_first) {
      begin_call(name);
      events_.arguments("{");
    }
    forget();
    if (found == 1) break;
    if (!is_first) events_.arguments(",");
    INFERNO_TRY(tagged_argument(name));
    forget();
  }
  events_.arguments("}");
  events_.call_end();
  co_return true;
}

Task<bool> Reader::tagged_argument(std::string_view name) {
  std::string key;
  INFERNO_TRY(until(tags().key_end, &key));
  if (!tags().value_open.empty()) {
    co_await space();
    INFERNO_TRY(literal(tags().value_open));
  }
  events_.arguments(fmt::format("\"{}\":", escaped(key)));
  forget();
  if (takes_text(name, key)) co_return co_await text_value(tags().value_close);
  std::string text;
  INFERNO_TRY(until(tags().value_close, &text));
  const std::string_view inside = without_line_ends(text);
  // What is no JSON is meant as a string.
  if (ordered_json::accept(inside)) {
    events_.arguments(inside);
  } else {
    events_.arguments(fmt::format("\"{}\"", escaped(inside)));
  }
  co_return true;
}

// A string, given on as it comes.
Task<bool> Reader::text_value(std::string_view close) {
  events_.arguments("\"");
  const int first = co_await input_.next();
  if (first == '\n') input_.take();
  std::string held;  // a line end, and what the closing tag begins with
  while (held != close && !(held.starts_with('\n') && held.substr(1) == close)) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd) {
      events_.arguments(escaped(held));
      co_return false;
    }
    held.push_back(input_.take());
    const auto may_close = [&] {
      return close.starts_with(held) || (held.front() == '\n' && close.starts_with(held.substr(1)));
    };
    while (!may_close()) {
      events_.arguments(escaped(held.substr(0, 1)));
      held.erase(0, 1);
      if (held.empty()) break;
    }
  }
  events_.arguments("\"");
  co_return true;
}

}  // namespace inferno::calls
