// The texts of JSON as rules: strings, numbers, any value, and the space between them.
//
// Space is one space, or a new line with at most kMaxIndent characters: a model that has lost its way cannot write
// space forever.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/expression.h"
#include "grammar/rules.h"

namespace inferno::grammar {

class JsonText {
 public:
  static constexpr uint32_t kMaxIndent = 40;

  explicit JsonText(Rules& rules) : rules_(rules), pool_(rules.pool) {}

  [[nodiscard]] ExprId space();
  // With quotes, all escapes included.
  [[nodiscard]] ExprId any_string();
  [[nodiscard]] ExprId any_number();
  [[nodiscard]] ExprId any_integer();
  [[nodiscard]] ExprId any_value();
  [[nodiscard]] ExprId any_object();
  [[nodiscard]] ExprId any_array();
  [[nodiscard]] ExprId boolean() { return pool_.choice({pool_.literal("true"), pool_.literal("false")}); }

  // One character of a string in any of its forms.
  [[nodiscard]] ExprId any_char();
  // Of these, those that are ASCII and written as themselves; and a rule of the others.
  [[nodiscard]] static const CharSet& short_chars();
  [[nodiscard]] RuleId long_char();
  // One character of the set in its shortest form: as itself, \n and the like, \u001f for other control characters.
  // What is compared with other strings is written this way only.
  [[nodiscard]] ExprId plain_chars(const CharSet& set);

  // "[" item ("," item)* "]" with space between.
  [[nodiscard]] ExprId comma() { return pool_.sequence({space(), pool_.literal(","), space()}); }
  [[nodiscard]] ExprId colon() { return pool_.sequence({space(), pool_.literal(":"), space()}); }

 private:
  [[nodiscard]] ExprId once(std::optional<RuleId>& rule, const char* name, const std::function<ExprId()>& make);
  [[nodiscard]] ExprId any_long_char();
  [[nodiscard]] ExprId list_of(std::string_view open, ExprId item, std::string_view close);

  Rules& rules_;
  ExprPool& pool_;
  std::optional<RuleId> space_, string_, number_, integer_, value_, object_, array_, long_char_;
};

// The plain form of a string's inside, as plain_chars() has it.
[[nodiscard]] std::string plain_string(std::string_view text);

}  // namespace inferno::grammar
