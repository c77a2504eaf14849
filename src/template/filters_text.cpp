// Filters that make text.
#include <fmt/core.h>

#include <algorithm>

#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"
#include "template/text_ops.h"
#include "template/unicode.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

// A method of strings as a filter: other values become strings first.
template <const char* Name>
Value method_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const Value text = as_string(evaluator.run(), self);
  CallArguments arguments = parameters.given();
  for (auto& entry : arguments.named) arguments.positional.push_back(std::move(entry.second));
  arguments.named.clear();
  const BuiltinEntry* method = find_method(text, Name);
  return method->function(evaluator, text, Parameters(method->name, method->signature, arguments));
}

constexpr char kUpper[] = "upper";
constexpr char kLower[] = "lower";
constexpr char kCapitalize[] = "capitalize";
constexpr char kStrip[] = "strip";

Value center_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const Value text = as_string(evaluator.run(), self);
  CallArguments arguments{.positional = {parameters.has(0) ? parameters.at(0) : Value::integer(80)}};
  const BuiltinEntry* method = find_method(text, "center");
  return method->function(evaluator, text, Parameters(method->name, method->signature, arguments));
}

Value title_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  Run& run = evaluator.run();
  const Value value = as_string(run, self);
  const Text& text = value.as_text();
  run.charge(text.size() * 2);
  const auto separates = [](char32_t code) {
    return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
  };
  Text out;
  for (size_t i = 0; i < text.size();) {
    const size_t first = i + character_at(text.view(), i).size;
    size_t end = first;
    const bool separator = separates(character_at(text.view(), i).code);
    while (end < text.size() && separates(character_at(text.view(), end).code) == separator) {
      end += character_at(text.view(), end).size;
    }
    out.append(to_upper(text.slice(i, first)));
    out.append(to_lower(text.slice(first, end)));
    i = end;
  }
  return run.text(std::move(out));
}

Value replace_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  const Text text = to_text(run, self);
  const Text old = to_text(run, parameters.at(0));
  const Text fresh = to_text(run, parameters.at(1));
  const int64_t limit = parameters.is_none(2) ? -1 : parameters.integer(2, -1);
  run.charge(count_matches(text.view(), old.view()) * (fresh.size() + 8) + text.size());
  return run.text(replace(text, old.view(), fresh, limit));
}

Value string_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  return as_string(evaluator.run(), self);
}

Value safe_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  return as_string(evaluator.run(), self).as_markup();
}

Value escape_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  if (self.is(Kind::string) && self.is_markup()) return self;
  const Text text = to_text(evaluator.run(), self);
  evaluator.run().charge(text.size() * 6);
  return evaluator.run().text(escape_html(text), true);
}

Value force_escape_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  const Text text = to_text(evaluator.run(), self);
  evaluator.run().charge(text.size() * 6);
  return evaluator.run().text(escape_html(text), true);
}

Value indent_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  if (is_undefined(self)) throw Failure(self.undefined_message());
  if (!self.is(Kind::string)) throw Failure(fmt::format("indent needs a string, not a {}", self.type_name()));
  Text indention(std::string(4, ' '), true);
  if (parameters.has(0) && parameters.at(0).is(Kind::string)) {
    indention = parameters.at(0).as_text();
  } else if (parameters.has(0)) {
    const int64_t width = std::max<int64_t>(parameters.integer(0, 4), 0);
    run.charge(static_cast<uint64_t>(width));
    indention = Text(std::string(static_cast<size_t>(width), ' '), true);
  }
  const bool blank = parameters.flag(2, false);
  Text source = self.as_text();
  source.append("\n", true);
  const std::vector<Text> lines = split_lines(source, false);
  run.charge(source.size() + lines.size() * (indention.size() + sizeof(Text)));
  Text out;
  if (parameters.flag(1, false)) out.append(indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", true);
    if (i > 0 && (blank || !lines[i].empty())) out.append(indention);
    out.append(lines[i]);
  }
  return run.text(std::move(out), self.is_markup());
}

Value truncate_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  if (!self.is(Kind::string)) throw Failure(fmt::format("truncate needs a string, not a {}", self.type_name()));
  const int64_t length = parameters.integer(0, 255);
  const Value end = parameters.has(2) ? *parameters.string(2) : Value::control("...");
  const int64_t leeway = parameters.is_none(3) ? 5 : parameters.integer(3, 5);
  const auto end_size = static_cast<int64_t>(count_characters(end.as_view()));
  if (length < end_size || leeway < 0) throw Failure("truncate needs a length of at least its end's");
  const Text& text = self.as_text();
  run.step(self.weight());
  const auto size = static_cast<int64_t>(count_characters(text.view()));
  if (size - length <= leeway) return self;
  Text kept = text.slice(0, offset_of(text.view(), static_cast<size_t>(length - end_size)));
  if (!parameters.flag(1, false)) {
    const size_t space = kept.view().rfind(' ');
    if (space != std::string_view::npos) kept = kept.slice(0, space);
  }
  return concat(run, run.text(std::move(kept), self.is_markup()), end);
}

Value word_count_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  const Text text = to_text(evaluator.run(), self);
  int64_t count = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text.view(), i);
    const bool is_word = c.code == '_' || is_alpha(c.code) || is_numeric(c.code);
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    i += c.size;
  }
  return Value::integer(count);
}

Value format_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  const CallArguments& given = parameters.given();
  if (!given.positional.empty() && !given.named.empty()) {
    throw Failure("format takes arguments either by position or by name");
  }
  const Value format = as_string(run, self);
  if (given.named.empty()) {
    return arithmetic(run, Operator::modulo, format, run.list(given.positional, Sequence::Form::tuple));
  }
  Dict named;
  for (const auto& [name, value] : given.named) named.set(Value::control(name), value);
  return arithmetic(run, Operator::modulo, format, run.dict(std::move(named)));
}

Value tojson_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  JsonStyle style;
  style.ensure_ascii = parameters.flag(0, false);
  if (!parameters.is_none(1)) {
    if (parameters.at(1).is(Kind::string)) {
      style.indent = parameters.at(1).as_text();
    } else {
      const int64_t width = std::max<int64_t>(parameters.integer(1, 0), 0);
      run.charge(static_cast<uint64_t>(width));
      style.indent = Text(std::string(static_cast<size_t>(width), ' '), true);
    }
    style.item_separator = Text(",", true);
  }
  if (!parameters.is_none(2)) {
    const std::vector<Value> separators = iterate(run, parameters.at(2));
    const bool valid = separators.size() == 2 && separators[0].is(Kind::string) && separators[1].is(Kind::string);
    if (!valid) throw Failure("tojson needs two separators");
    style.item_separator = separators[0].as_text();
    style.key_separator = separators[1].as_text();
  }
  style.sort_keys = parameters.flag(3, false);
  return run.text(to_json(run, self, style));
}

constexpr FilterEntry kTextFilters[] = {
    {{"upper", "", method_filter<kUpper>}},
    {{"lower", "", method_filter<kLower>}},
    {{"capitalize", "", method_filter<kCapitalize>}},
    {{"trim", "chars?", method_filter<kStrip>}},
    {{"title", "", title_filter}},
    {{"center", "width?", center_filter}},
    {{"replace", "old new count?", replace_filter}},
    {{"string", "", string_filter}},
    {{"safe", "", safe_filter}},
    {{"escape", "", escape_filter}},
    {{"e", "", escape_filter}},
    {{"forceescape", "", force_escape_filter}},
    {{"indent", "width? first? blank?", indent_filter}},
    {{"truncate", "length? killwords? end? leeway?", truncate_filter}},
    {{"wordcount", "", word_count_filter}},
    {{"format", "*", format_filter}},
    {{"tojson", "ensure_ascii? indent? separators? sort_keys?", tojson_filter}},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kTextFilters;
}

}  // namespace inferno::jinja
