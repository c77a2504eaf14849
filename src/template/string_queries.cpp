// Methods of strings that give something else than a string.
#include <fmt/core.h>

#include <algorithm>

#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"
#include "template/text_ops.h"
#include "template/unicode.h"

namespace inferno::jinja {
namespace {

// Bytes [begin, end) of self that the optional arguments at `first` and `first` + 1 name by characters.
struct Range {
  size_t begin, end;
  bool valid;  // begin is not past the end
};

Range range_of(const Value& self, const Parameters& parameters, size_t first) {
  const std::string_view text = self.as_view();
  if (parameters.is_none(first) && parameters.is_none(first + 1)) return {0, text.size(), true};
  const auto length = static_cast<int64_t>(count_characters(text));
  const auto resolve = [&](size_t i, int64_t otherwise) {
    if (parameters.is_none(i)) return otherwise;
    const int64_t value = parameters.integer(i, 0);
    return value < 0 ? std::max<int64_t>(value + length, 0) : value;
  };
  const int64_t begin = resolve(first, 0);
  const int64_t end = std::min(resolve(first + 1, length), length);
  if (begin > end) return {0, 0, false};
  return {offset_of(text, static_cast<size_t>(begin)), offset_of(text, static_cast<size_t>(end)), true};
}

bool matches(const Value& self, const Parameters& parameters, bool at_start) {
  const Range range = range_of(self, parameters, 1);
  const auto test = [&](const Value& part) {
    if (!part.is(Kind::string)) throw Failure(fmt::format("{}() needs a string", parameters.function()));
    if (!range.valid) return false;
    const std::string_view text = self.as_view().substr(range.begin, range.end - range.begin);
    return at_start ? text.starts_with(part.as_view()) : text.ends_with(part.as_view());
  };
  const Value& part = parameters.at(0);
  if (is_undefined(part)) throw Failure(part.undefined_message());
  if (!part.is(Kind::sequence) || !part.as_sequence().is_tuple()) return test(part);
  return std::any_of(part.as_sequence().items.begin(), part.as_sequence().items.end(), test);
}

Value starts_with(Evaluator&, const Value& self, const Parameters& parameters) {
  return Value::boolean(matches(self, parameters, true));
}

Value ends_with(Evaluator&, const Value& self, const Parameters& parameters) {
  return Value::boolean(matches(self, parameters, false));
}

// Searching from the right tries every position.
void pay_search(Evaluator& evaluator, const Value& self, std::string_view part, bool from_right) {
  evaluator.run().step(self.weight() * (from_right ? 1 + part.size() / 16 : 1));
}

int64_t find_index(Evaluator& evaluator, const Value& self, const Parameters& parameters, bool from_right) {
  const std::string_view part = parameters.string(0)->as_view();
  pay_search(evaluator, self, part, from_right);
  const Range range = range_of(self, parameters, 1);
  if (!range.valid) return -1;
  const std::string_view text = self.as_view().substr(range.begin, range.end - range.begin);
  const size_t found = from_right ? text.rfind(part) : find_part(text, part);
  if (found == std::string_view::npos) return -1;
  return static_cast<int64_t>(count_characters(self.as_view().substr(0, range.begin + found)));
}

template <bool FromRight>
Value find_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  return Value::integer(find_index(evaluator, self, parameters, FromRight));
}

template <bool FromRight>
Value index_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const int64_t found = find_index(evaluator, self, parameters, FromRight);
  if (found < 0) throw Failure("index() did not find the text");
  return Value::integer(found);
}

Value count_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  evaluator.run().step(self.weight());
  const std::string_view part = parameters.string(0)->as_view();
  const Range range = range_of(self, parameters, 1);
  if (!range.valid) return Value::integer(0);
  const std::string_view text = self.as_view().substr(range.begin, range.end - range.begin);
  return Value::integer(static_cast<int64_t>(count_matches(text, part)));
}

Value list_of(Evaluator& evaluator, const Value& self, std::vector<Text> parts,
              Sequence::Form form = Sequence::Form::list) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) items.push_back(evaluator.run().text(std::move(part), self.is_markup()));
  return evaluator.run().list(std::move(items), form);
}

template <std::vector<Text> (*Split)(const Text&, std::optional<std::string_view>, int64_t)>
Value split_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  std::optional<std::string_view> separator;
  if (!parameters.is_none(0)) separator = parameters.string(0)->as_view();
  if (separator && separator->empty()) throw Failure("split() needs a separator that is not empty");
  pay_search(evaluator, self, separator.value_or(""), true);
  const size_t parts = separator ? count_matches(self.as_view(), *separator) + 1 : self.as_text().size() / 2 + 1;
  evaluator.run().charge(self.as_text().size() + parts * (sizeof(Text) + sizeof(Value)));
  return list_of(evaluator, self, Split(self.as_text(), separator, parameters.integer(1, -1)));
}

Value split_lines_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  evaluator.run().charge(self.as_text().size() * 2);
  return list_of(evaluator, self, split_lines(self.as_text(), parameters.flag(0, false)));
}

template <bool FromRight>
Value partition_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const Value& separator = *parameters.string(0);
  if (separator.as_text().empty()) throw Failure("partition() needs a separator that is not empty");
  const Text& text = self.as_text();
  pay_search(evaluator, self, separator.as_view(), FromRight);
  const size_t found = FromRight ? text.view().rfind(separator.as_view()) : find_part(text.view(), separator.as_view());
  std::vector<Text> parts;
  if (found == std::string_view::npos) {
    parts = FromRight ? std::vector<Text>{Text(), Text(), text} : std::vector<Text>{text, Text(), Text()};
  } else {
    const size_t after = found + separator.as_text().size();
    parts = {text.slice(0, found), text.slice(found, after), text.slice(after, text.size())};
  }
  return list_of(evaluator, self, std::move(parts), Sequence::Form::tuple);
}

// Not empty, and every character is of the kind.
template <bool (*Is)(char32_t)>
Value all_are(Evaluator& evaluator, const Value& self, const Parameters&) {
  const std::string_view text = self.as_view();
  evaluator.run().step(self.weight());
  size_t i = 0;
  while (i < text.size() && Is(character_at(text, i).code)) i += character_at(text, i).size;
  return Value::boolean(!text.empty() && i == text.size());
}

bool is_alphanumeric(char32_t code) {
  return is_alpha(code) || is_numeric(code);
}

bool is_ascii(char32_t code) {
  return code < 0x80;
}

// At least one character with a case, and none of the other case.
template <bool (*Is)(char32_t), bool (*IsOther)(char32_t)>
Value has_case(Evaluator& evaluator, const Value& self, const Parameters&) {
  const std::string_view text = self.as_view();
  evaluator.run().step(self.weight());
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    if (IsOther(c.code) || is_title(c.code)) return Value::boolean(false);
    any = any || Is(c.code);
    i += c.size;
  }
  return Value::boolean(any);
}

Value is_ascii_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  return self.as_text().empty() ? Value::boolean(true) : all_are<is_ascii>(evaluator, self, parameters);
}

Value is_printable_method(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  return self.as_text().empty() ? Value::boolean(true) : all_are<is_printable>(evaluator, self, parameters);
}

Value is_title_method(Evaluator& evaluator, const Value& self, const Parameters&) {
  const std::string_view text = self.as_view();
  evaluator.run().step(self.weight());
  bool any = false;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const Character c = character_at(text, i);
    const bool begins = is_upper(c.code) || is_title(c.code);
    if (begins ? in_word : is_lower(c.code) && !in_word) return Value::boolean(false);
    in_word = begins || is_lower(c.code);
    any = any || in_word;
    i += c.size;
  }
  return Value::boolean(any);
}

constexpr BuiltinEntry kPredicates[] = {
    {"startswith", "-prefix -start? -end?", starts_with},
    {"endswith", "-suffix -start? -end?", ends_with},
    {"find", "-sub -start? -end?", find_method<false>},
    {"rfind", "-sub -start? -end?", find_method<true>},
    {"index", "-sub -start? -end?", index_method<false>},
    {"rindex", "-sub -start? -end?", index_method<true>},
    {"count", "-sub -start? -end?", count_method},
    {"isalpha", "", all_are<is_alpha>},
    {"isalnum", "", all_are<is_alphanumeric>},
    {"isdecimal", "", all_are<is_decimal>},
    {"isdigit", "", all_are<is_digit>},
    {"isnumeric", "", all_are<is_numeric>},
    {"isspace", "", all_are<is_space>},
    {"isascii", "", is_ascii_method},
    {"isprintable", "", is_printable_method},
    {"islower", "", has_case<is_lower, is_upper>},
    {"isupper", "", has_case<is_upper, is_lower>},
    {"istitle", "", is_title_method},
};

constexpr BuiltinEntry kSplits[] = {
    {"split", "sep? maxsplit?", split_method<split>}, {"rsplit", "sep? maxsplit?", split_method<split_from_right>},
    {"splitlines", "keepends?", split_lines_method},  {"partition", "-sep", partition_method<false>},
    {"rpartition", "-sep", partition_method<true>},
};

}  // namespace

std::span<const BuiltinEntry> string_predicates() {
  return kPredicates;
}

std::span<const BuiltinEntry> split_methods() {
  return kSplits;
}

}  // namespace inferno::jinja
