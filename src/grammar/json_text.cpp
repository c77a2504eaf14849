#include "grammar/json_text.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>

namespace inferno::grammar {
namespace {

struct ShortEscape {
  uint32_t c;
  std::string_view text;
};
constexpr std::array<ShortEscape, 7> kShortEscapes = {
    {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"}, {'\n', "\\n"}, {'\r', "\\r"}, {'\t', "\\t"}}};

// Characters that a string has only as escapes.
const CharSet& escaped_chars() {
  static const CharSet kSet = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  return kSet;
}

}  // namespace

std::string plain_string(std::string_view text) {
  const std::string quoted =
      nlohmann::json(std::string(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

ExprId JsonText::once(std::optional<RuleId>& rule, const char* name, const std::function<ExprId()>& make) {
  if (!rule) {
    rule = rules_.declare(name);  // first: it may call itself
    const ExprId body = make();
    rules_.rules[*rule].body = body;
  }
  return pool_.call(*rule);
}

ExprId JsonText::space() {
  return once(space_, "space", [&] {
    const ExprId indent = pool_.repeat(pool_.choice({pool_.literal(" "), pool_.literal("\t")}), 0, kMaxIndent);
    const ExprId line = pool_.sequence({pool_.optional(pool_.literal("\r")), pool_.literal("\n"), indent});
    return pool_.optional(pool_.choice({pool_.literal(" "), line}));
  });
}

const CharSet& JsonText::short_chars() {
  static const CharSet kSet = CharSet{{0, 0x7F}}.without(escaped_chars());
  return kSet;
}

RuleId JsonText::long_char() {
  return pool_[once(long_char_, "character", [&] { return any_long_char(); })].rule;
}

ExprId JsonText::any_char() {
  return pool_.choice({pool_.chars(short_chars()), any_long_char()});
}

ExprId JsonText::any_long_char() {
  const ExprId raw = pool_.chars({{0x80, CharSet::kLast}});
  const CharSet hex = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  const auto digits = [&](uint32_t count) { return pool_.repeat(pool_.chars(hex), count, count); };
  const ExprId d = pool_.choice({pool_.literal("d"), pool_.literal("D")});
  const CharSet high = {{'8', '9'}, {'A', 'B'}, {'a', 'b'}};
  const CharSet low = {{'C', 'F'}, {'c', 'f'}};
  // Halves of a character beyond U+FFFF only as a pair.
  const ExprId code = pool_.choice(
      {pool_.sequence({pool_.chars({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}), digits(3)}),
       pool_.sequence({d, pool_.range('0', '7'), digits(2)}),
       pool_.sequence({d, pool_.chars(high), digits(2), pool_.literal("\\u"), d, pool_.chars(low), digits(2)})});
  const ExprId escape = pool_.sequence(
      {pool_.literal("\\"),
       pool_.choice(
           {pool_.chars(
                {{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}}),
            pool_.sequence({pool_.literal("u"), code})})});
  return pool_.choice({raw, escape});
}

ExprId JsonText::plain_chars(const CharSet& set) {
  std::vector<ExprId> forms;
  const CharSet raw = set.without(escaped_chars());
  if (!raw.empty()) forms.push_back(pool_.chars(raw));
  CharSet rest = set.without(raw);
  CharSet letters;  // after the backslash
  for (const ShortEscape& escape : kShortEscapes) {
    if (!rest.contains(escape.c)) continue;
    const auto letter = static_cast<uint8_t>(escape.text[1]);
    letters.add(letter, letter);
    rest = rest.without({{escape.c, escape.c}});
  }
  if (!letters.empty()) forms.push_back(pool_.sequence({pool_.literal("\\"), pool_.chars(letters)}));
  // The others are below U+0020.
  for (const uint32_t first : {0U, 0x10U}) {
    CharSet digits;
    for (uint32_t digit = 0; digit < 16; ++digit) {
      const auto hex = static_cast<uint8_t>("0123456789abcdef"[digit]);
      if (rest.contains(first + digit)) digits.add(hex, hex);
    }
    const char* begin = first == 0 ? "\\u000" : "\\u001";
    if (!digits.empty()) forms.push_back(pool_.sequence({pool_.literal(begin), pool_.chars(digits)}));
  }
  return pool_.choice(forms);
}

ExprId JsonText::any_string() {
  return once(string_, "string", [&] {
    return pool_.sequence({pool_.literal("\""), pool_.repeat(any_char(), 0, kUnlimited), pool_.literal("\"")});
  });
}

ExprId JsonText::any_integer() {
  return once(integer_, "integer", [&] {
    return pool_.sequence(
        {pool_.optional(pool_.literal("-")),
         pool_.choice({pool_.literal("0"),
                       pool_.sequence({pool_.range('1', '9'), pool_.repeat(pool_.range('0', '9'), 0, kUnlimited)})})});
  });
}

ExprId JsonText::any_number() {
  return once(number_, "number", [&] {
    const ExprId digits = pool_.repeat(pool_.range('0', '9'), 1, kUnlimited);
    const ExprId fraction = pool_.sequence({pool_.literal("."), digits});
    const ExprId sign = pool_.choice({pool_.literal("+"), pool_.literal("-")});
    const ExprId e = pool_.choice({pool_.literal("e"), pool_.literal("E")});
    const ExprId exponent = pool_.sequence({e, pool_.optional(sign), digits});
    const ExprId whole =
        pool_.choice({pool_.literal("0"),
                      pool_.sequence({pool_.range('1', '9'), pool_.repeat(pool_.range('0', '9'), 0, kUnlimited)})});
    return pool_.sequence(
        {pool_.optional(pool_.literal("-")), whole, pool_.optional(fraction), pool_.optional(exponent)});
  });
}

ExprId JsonText::list_of(std::string_view open, ExprId item, std::string_view close) {
  const ExprId more = pool_.repeat(pool_.sequence({comma(), item}), 0, kUnlimited);
  const ExprId items = pool_.sequence({item, more, space()});
  return pool_.sequence({pool_.literal(open), space(), pool_.optional(items), pool_.literal(close)});
}

ExprId JsonText::any_array() {
  return once(array_, "array", [&] { return list_of("[", any_value(), "]"); });
}

ExprId JsonText::any_object() {
  return once(object_, "object",
              [&] { return list_of("{", pool_.sequence({any_string(), colon(), any_value()}), "}"); });
}

ExprId JsonText::any_value() {
  return once(value_, "value", [&] {
    return pool_.choice({any_object(), any_array(), any_string(), any_number(), boolean(), pool_.literal("null")});
  });
}

}  // namespace inferno::grammar
