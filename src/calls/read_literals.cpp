// Calls as literals of other languages, rewritten as JSON: Python's, and Gemma's with markers around strings. A call is
// given out when all of it was read.
#include <array>

#include "base/text.h"
#include "calls/reader.h"

namespace inferno::calls {
namespace {

using nlohmann::json;

std::string quoted_json(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

void add_utf8(uint32_t c, std::string& text) {
  if (c < 0x80) {
    text += static_cast<char>(c);
    return;
  }
  if (c >= 0x800) {
    text += static_cast<char>(0xE0 | (c >> 12));
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
  } else {
    text += static_cast<char>(0xC0 | (c >> 6));
  }
  text += static_cast<char>(0x80 | (c & 0x3F));
}

// What follows a backslash in Python, but for the digits of \x and \u.
std::optional<char> simple_escape(int c) {
  constexpr std::string_view kNames = "ntrbf\\'\"/";
  constexpr std::string_view kBytes = "\n\t\r\b\f\\'\"/";
  const size_t found = c < 0 ? std::string_view::npos : kNames.find(static_cast<char>(c));
  return found == std::string_view::npos ? std::nullopt : std::optional(kBytes[found]);
}

int digit_of(int c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

// [f(a=1), g()]
Task<bool> Reader::pythonic_list() {
  co_await space();
  INFERNO_TRY(literal("["));
  for (;;) {
    co_await space();
    std::string name;
    std::string arguments;
    INFERNO_TRY(word(&name));
    INFERNO_TRY(literal("("));
    INFERNO_TRY(literal_members(&arguments, '=', ')', 0));
    begin_call(name);
    events_.arguments(arguments);
    events_.call_end();
    co_await space();
    const int next = co_await input_.next();
    if (next != ',' && next != ']') co_return false;
    keep();
    if (next == ']') break;
  }
  forget();
  co_return true;
}

// call:f{a:1}
Task<bool> Reader::gemma_call() {
  std::string name;
  std::string arguments;
  INFERNO_TRY(literal("call:"));
  INFERNO_TRY(word(&name));
  INFERNO_TRY(literal("{"));
  INFERNO_TRY(literal_members(&arguments, ':', '}', 0));
  begin_call(name);
  events_.arguments(arguments);
  events_.call_end();
  co_return true;
}

// The comma before an item that is not the first: 0 an item follows, 1 the closing bracket does, -1 neither. A comma
// may be there before the bracket, too.
Task<int> Reader::next_or_end(char close, bool is_first) {
  co_await space();
  const int next = co_await input_.next();
  if (next == close) co_return 1;
  if (is_first) co_return 0;
  if (next != ',') co_return -1;
  keep();
  co_await space();
  const int after = co_await input_.next();
  co_return after == close ? 1 : 0;
}

// key=value, ... up to and with `close`, as a JSON object.
Task<bool> Reader::literal_members(std::string* json, char equals, char close, int depth) {
  *json += '{';
  for (bool is_first = true;; is_first = false) {
    const int found = co_await next_or_end(close, is_first);
    if (found < 0) co_return false;
    if (found == 1) break;
    if (!is_first) *json += ',';
    INFERNO_TRY(literal_key(json));
    co_await space();
    INFERNO_TRY(literal({&equals, 1}));
    *json += ':';
    co_await space();
    INFERNO_TRY(literal_value(json, depth + 1));
  }
  keep();
  *json += '}';
  co_return true;
}

Task<bool> Reader::literal_items(std::string* json, char close, int depth) {
  *json += '[';
  for (bool is_first = true;; is_first = false) {
    const int found = co_await next_or_end(close, is_first);
    if (found < 0) co_return false;
    if (found == 1) break;
    if (!is_first) *json += ',';
    INFERNO_TRY(literal_value(json, depth + 1));
  }
  keep();
  *json += ']';
  co_return true;
}

Task<bool> Reader::literal_key(std::string* json) {
  const int next = co_await input_.next();
  if (next == '"' || next == '\'') co_return co_await python_string(json);
  if (!format_.quote.empty() && next == format_.quote.front()) co_return co_await literal_value(json, kMaxDepth - 1);
  std::string key;
  while (key.size() < kMaxName) {
    const int byte = co_await input_.next();
    if (byte <= ' ' /* or the end */ || byte == ':' || byte == '=' || byte == ',' || byte == '}') break;
    key += keep();
  }
  *json += quoted_json(key);
  co_return !key.empty();
}

Task<bool> Reader::literal_value(std::string* json, int depth) {
  if (depth >= kMaxDepth) co_return false;
  const int next = co_await input_.next();
  if (!format_.quote.empty() && next == format_.quote.front()) {
    std::string text;
    INFERNO_TRY(literal(format_.quote));
    INFERNO_TRY(until(format_.quote, &text));
    *json += quoted_json(text);
    co_return true;
  }
  if (next == '"' || next == '\'') co_return co_await python_string(json);
  if (next != '[' && next != '{' && next != '(') co_return co_await literal_word(json);
  keep();
  if (next == '{') co_return co_await literal_members(json, ':', '}', depth);
  co_return co_await literal_items(json, next == '[' ? ']' : ')', depth);
}

// A number or a name such as None. Gemma leaves markers of short strings out now and then.
Task<bool> Reader::literal_word(std::string* json) {
  constexpr std::string_view kEnds = ",)]}";
  std::string word;
  for (;;) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd) co_return false;
    if (kEnds.find(static_cast<char>(next)) != std::string_view::npos) break;
    word += keep();
  }
  word = trim(word);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kNames = {
      {{"True", "true"}, {"False", "false"}, {"None", "null"}}};
  for (const auto& [python, same] : kNames) {
    if (word == python) word = same;
  }
  const bool is_json = nlohmann::json::accept(word);
  if (!is_json && (is_python() || word.empty())) co_return false;
  *json += is_json ? word : quoted_json(word);
  co_return true;
}

Task<bool> Reader::python_string(std::string* json) {
  const char quote = keep();
  std::string text;
  for (;;) {
    const int next = co_await input_.next();
    if (next == ByteInput::kEnd) co_return false;
    const char byte = keep();
    if (byte == quote) break;
    if (byte != '\\') {
      text += byte;
      continue;
    }
    const int escape = co_await input_.next();
    if (escape == ByteInput::kEnd) co_return false;
    keep();
    if (const std::optional<char> simple = simple_escape(escape)) {
      text += *simple;
    } else if (escape == 'x' || escape == 'u') {
      uint32_t code = 0;
      for (int i = escape == 'x' ? 2 : 4; i > 0; --i) {
        const int digit = digit_of(co_await input_.next());
        if (digit < 0) co_return false;
        keep();
        code = code * 16 + static_cast<uint32_t>(digit);
      }
      add_utf8(code, text);
    } else {
      text += {'\\', static_cast<char>(escape)};
    }
  }
  *json += quoted_json(text);
  co_return true;
}

}  // namespace inferno::calls
