#include "grammar/source.h"

#include "base/error.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"

namespace inferno::grammar {
namespace {

Rules regex_rules(std::string_view pattern, const Limits& limits) {
  Rules rules(limits);
  const WriteChars write = [&](const CharSet& set) { return rules.pool.chars(set); };
  const ExprId body = parse_regex(pattern, RegexMatch::whole, rules.pool, write, limits);
  rules.start = rules.define("root", body);
  return rules;
}

Rules choice_rules(const std::vector<std::string>& choices, const Limits& limits) {
  if (choices.empty()) fail_usage("there is no text to choose");
  Rules rules(limits);
  rules.start = rules.define("root", words_machine(choices, limits));
  return rules;
}

}  // namespace

Rules parse_source(const Source& source, const Limits& limits) {
  switch (source.kind) {
    case SourceKind::json_schema:
      return parse_json_schema(source.text, limits);
    case SourceKind::regex:
      return regex_rules(source.text, limits);
    case SourceKind::gbnf:
      return parse_gbnf(source.text, limits);
    case SourceKind::choice:
      break;
  }
  return choice_rules(source.choices, limits);
}

}  // namespace inferno::grammar
