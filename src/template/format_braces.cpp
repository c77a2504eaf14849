#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "template/evaluator.h"
#include "template/format.h"
#include "template/unicode.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

FormatSpec parse_spec(const Text& text) {
  FormatSpec spec;
  const std::string_view view = text.view();
  const std::string_view aligns = "<>^=";
  size_t at = 0;
  if (!view.empty()) {
    const size_t first = character_at(view, 0).size;
    if (first < view.size() && aligns.find(view[first]) != std::string_view::npos) {
      spec.fill = text.slice(0, first);
      spec.align = view[first];
      at = first + 1;
    } else if (aligns.find(view[0]) != std::string_view::npos) {
      spec.align = view[0];
      at = 1;
    }
  }
  const auto peek = [&] { return at < view.size() ? view[at] : '\0'; };
  const auto number = [&] {
    int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at) value = std::min<int64_t>(value * 10 + (peek() - '0'), INT32_MAX);
    return value;
  };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = view[at++];
  if (peek() == '#') {
    spec.alternate = true;
    ++at;
  }
  if (peek() == '0' && spec.align == 0) {
    spec.fill = Text("0", true);
    spec.align = '=';
  }
  spec.width = number();
  if (peek() == ',' || peek() == '_') spec.group = view[at++];
  if (peek() == '.') {
    ++at;
    if (peek() < '0' || peek() > '9') throw Failure("a format has no precision after its dot");
    spec.precision = number();
  }
  if (at < view.size()) spec.type = view[at++];
  if (at < view.size()) throw Failure(fmt::format("a format is not understood: \"{}\"", printable(view, 20)));
  return spec;
}

Text apply(Run& run, const Value& value, const Text& text) {
  if (text.empty()) return to_text(run, value);
  FormatSpec spec = parse_spec(text);
  const std::string_view doubles = "eEfFgGn%";
  const bool has_double_type = spec.type != 0 && doubles.find(spec.type) != std::string_view::npos;
  if (value.is(Kind::string)) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != '-' || spec.group != 0) {
      if (!(spec.align == '=' && spec.fill.view() == "0" && spec.type == 0))
        throw Failure("a format does not fit a string");
      spec.align = '<';
    }
    return format_string(run, value.as_text(), spec);
  }
  if (value.is(Kind::floating) || (value.is_integral() && has_double_type && spec.type != 'n')) {
    if (spec.type != 0 && !has_double_type) throw Failure("a format does not fit a float");
    return format_double(run, value, spec);
  }
  if (value.is_integral()) {
    const std::string_view types = "bcdoxXn";
    const bool known = spec.type == 0 || types.find(spec.type) != std::string_view::npos;
    if (!known || spec.precision >= 0) throw Failure("a format does not fit an integer");
    if (spec.type != 'c') return format_integer(run, value, spec);
    if (value.as_integer() < 0 || value.as_integer() > 0x10FFFF) throw Failure("a format needs a character");
    std::string bytes;
    append_character(bytes, static_cast<char32_t>(value.as_integer()));
    return pad(run, Text(bytes, !value.is_user()), spec, '<');
  }
  throw Failure(fmt::format("a format does not fit a {}", value.type_name()));
}

class Braces {
 public:
  Braces(Evaluator& evaluator, bool markup, const CallArguments& arguments)
      : evaluator_(evaluator), markup_(markup), arguments_(arguments) {}

  Text run(const Text& format, int depth) {
    if (depth > 1) throw Failure("a format is nested too deep");
    const std::string_view text = format.view();
    Text out;
    for (size_t at = 0; at < text.size();) {
      const size_t mark = std::min(text.find_first_of("{}", at), text.size());
      out.append(format, at, mark);
      at = mark;
      if (at == text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        out.append(format, at, at + 1);
        at += 2;
        continue;
      }
      if (text[at] == '}') throw Failure("a format has a single }");
      const size_t end = find_end(text, at + 1);
      out.append(field(format.slice(at + 1, end), depth));
      at = end + 1;
    }
    evaluator_.run().charge(out.size());
    return out;
  }

 private:
  static size_t find_end(std::string_view text, size_t at) {
    int open = 1;
    bool in_brackets = false;
    for (; at < text.size(); ++at) {
      if (text[at] == '[') in_brackets = true;
      if (text[at] == ']') in_brackets = false;
      if (in_brackets) continue;
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    throw Failure("a format has a { without }");
  }

  Text field(const Text& text, int depth) {
    const std::string_view view = text.view();
    size_t name_end = 0;
    bool in_brackets = false;
    while (name_end < view.size() && (in_brackets || (view[name_end] != ':' && view[name_end] != '!'))) {
      if (view[name_end] == '[') in_brackets = true;
      if (view[name_end] == ']') in_brackets = false;
      ++name_end;
    }
    Value value = lookup(view.substr(0, name_end));
    size_t at = name_end;
    if (at < view.size() && view[at] == '!') {
      const char conversion = at + 1 < view.size() ? view[at + 1] : '\0';
      if (conversion != 'r' && conversion != 's' && conversion != 'a')
        throw Failure("a format has an unknown conversion");
      Run& run = evaluator_.run();
      value = run.text(conversion == 's' ? to_text(run, value) : to_repr(run, value));
      at += 2;
      if (at < view.size() && view[at] != ':') throw Failure("a format is not understood");
    }
    const Text spec = at < view.size() ? run(text.slice(at + 1, text.size()), depth + 1) : Text();
    Text out = apply(evaluator_.run(), value, spec);
    return markup_ && !value.is_markup() ? escape_html(out) : out;
  }

  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    size_t at = end;
    while (at < name.size()) {
      if (name[at] == '.') {
        const size_t next = std::min(name.find_first_of(".[", at + 1), name.size());
        value = evaluator_.attribute(value, Value::control(name.substr(at + 1, next - at - 1)));
        at = next;
      } else if (name[at] == '[') {
        const size_t close = name.find(']', at);
        if (close == std::string_view::npos) throw Failure("a format has a [ without ]");
        const std::string_view key = name.substr(at + 1, close - at - 1);
        const std::optional<int64_t> index = key.starts_with('-') ? std::nullopt : parse_int(key);
        value = evaluator_.item(value, index ? Value::integer(*index) : Value::control(key));
        at = close + 1;
      } else {
        throw Failure("a format is not understood");
      }
    }
    return value;
  }

  Value first(std::string_view name) {
    const std::optional<int64_t> given = parse_int(name);
    if (name.empty() || (given && *given >= 0)) {
      if (numbering_ != 0 && numbering_ != (name.empty() ? 1 : 2)) throw Failure("a format mixes {} and {0}");
      numbering_ = name.empty() ? 1 : 2;
      const auto index = static_cast<size_t>(name.empty() ? next_++ : *given);
      if (index >= arguments_.positional.size()) throw Failure("a format needs more arguments");
      return arguments_.positional[index];
    }
    evaluator_.run().step(1 + arguments_.named.size() / 16);
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw Failure(fmt::format("a format names '{}', which is not given", printable(name, 40)));
  }

  Evaluator& evaluator_;
  bool markup_;
  const CallArguments& arguments_;
  int numbering_ = 0;  // 1: automatic, 2: by number
  int64_t next_ = 0;
};

}  // namespace

Value format_braces(Evaluator& evaluator, const Value& format, const CallArguments& arguments) {
  Text out = Braces(evaluator, format.is_markup(), arguments).run(format.as_text(), 0);
  return evaluator.run().text(std::move(out), format.is_markup());
}

}  // namespace inferno::jinja
