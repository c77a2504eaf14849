#include "grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "grammar/utf8_reader.h"

namespace inferno::grammar {
namespace {

constexpr uint32_t kMostRepeats = 1'000'000;

bool is_name_char(uint32_t c) {
  const uint32_t letter = c | 0x20U;
  return c < 0x80 && ((letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_');
}

class GbnfParser {
 public:
  GbnfParser(std::string_view source, const Limits& limits)
      : in_(source, "the grammar"), limits_(limits), rules_(limits), pool_(rules_.pool) {}

  Rules run() {
    skip_space(true);
    while (!in_.at_end()) {
      const std::string name = read_name();
      const RuleId rule = rule_of(name);
      skip_space(false);
      if (!in_.skip("::=")) in_.wrong("after the name of a rule there must be ::=");
      if (rules_.rules[rule].body) in_.wrong("the rule \"{}\" is there twice", name);
      skip_space(true);
      const ExprId body = alternatives(0, false);
      rules_.rules[rule].body = body;
      skip_space(true);
    }
    for (const Rule& rule : rules_.rules) {
      if (!rule.body) fail_usage("the grammar has no rule \"{}\"", printable(rule.name));
    }
    const auto root = names_.find("root");
    if (root == names_.end()) fail_usage("the grammar has no rule \"root\", which a text begins with");
    rules_.start = root->second;
    return std::move(rules_);
  }

 private:
  // Comments end lines. Where a rule may end, a line's end is not skipped.
  void skip_space(bool lines) {
    for (;;) {
      const uint32_t c = in_.peek();
      if (c == '#') {
        while (!in_.at_end() && in_.peek() != '\n' && in_.peek() != '\r') in_.next();
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        in_.next();
      } else {
        return;
      }
    }
  }

  std::string read_name() {
    std::string name;
    while (is_name_char(in_.peek())) name.push_back(static_cast<char>(in_.next()));
    if (name.empty()) in_.wrong("the name of a rule is missing");
    return name;
  }

  RuleId rule_of(const std::string& name) {
    const auto found = names_.find(name);
    if (found != names_.end()) return found->second;
    const RuleId rule = rules_.declare(name);
    names_.emplace(name, rule);
    return rule;
  }

  ExprId alternatives(int depth, bool nested) {
    if (depth > limits_.depth) in_.wrong("groups are nested more than {} deep", limits_.depth);
    std::vector<ExprId> ways;
    for (;;) {
      ways.push_back(sequence(depth, nested));
      if (!in_.skip("|")) return pool_.choice(ways);
      skip_space(true);
    }
  }

  ExprId sequence(int depth, bool nested) {
    std::vector<ExprId> parts;
    for (;;) {
      const std::optional<ExprId> part = atom(depth);
      if (!part) return pool_.sequence(parts);
      parts.push_back(repeated(*part));
      skip_space(nested);
    }
  }

  std::optional<ExprId> atom(int depth) {
    const uint32_t c = in_.peek();
    if (is_name_char(c)) return pool_.call(rule_of(read_name()));
    switch (c) {
      case '"':
        return literal();
      case '[':
        return char_class();
      case '.':
        in_.next();
        return pool_.chars(CharSet::all());
      case '(': {
        in_.next();
        skip_space(true);
        const ExprId inside = alternatives(depth + 1, true);
        skip_space(true);
        if (!in_.skip(")")) in_.wrong("a ( has no )");
        return inside;
      }
      case '<':
      case '!':
        in_.wrong("references to tokens are not supported");
      case '|':
      case ')':
      case '\n':
      case '\r':
      case kNoChar:
        return std::nullopt;
      default:
        in_.wrong("this character means nothing here");
    }
  }

  ExprId repeated(ExprId body) {
    for (int nested = 0;; ++nested) {
      if (nested > limits_.depth) in_.wrong("too many repetitions of repetitions");
      if (in_.skip("*")) {
        body = pool_.repeat(body, 0, kUnlimited);
      } else if (in_.skip("+")) {
        body = pool_.repeat(body, 1, kUnlimited);
      } else if (in_.skip("?")) {
        body = pool_.optional(body);
      } else if (in_.skip("{")) {
        body = counted(body);
      } else {
        return body;
      }
    }
  }

  ExprId counted(ExprId body) {
    skip_space(false);
    uint32_t least = in_.decimal(kMostRepeats);
    skip_space(false);
    uint32_t most = least;
    if (in_.skip(",")) {
      skip_space(false);
      most = in_.decimal(kMostRepeats);
      if (most == kNoChar) most = kUnlimited;
      if (least == kNoChar) least = 0;
      skip_space(false);
    }
    if (least == kNoChar || !in_.skip("}")) in_.wrong("a repetition must be {{m}}, {{m,}}, {{,n}} or {{m,n}}");
    if (least > most) in_.wrong("a repetition {{m,n}} has m above n");
    return pool_.repeat(body, least, most);
  }

  uint32_t read_char() {
    const uint32_t c = in_.next();
    if (c == kNoChar || c == '\n') in_.wrong("a literal or class has no end");
    if (c != '\\') return c;
    const uint32_t escaped = in_.next();
    switch (escaped) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return in_.hex(2);
      case 'u':
        return in_.hex(4);
      case 'U':
        return in_.hex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return escaped;
      default:
        in_.wrong("there is no such escape");
    }
  }

  ExprId literal() {
    in_.next();
    std::vector<ExprId> parts;
    while (!in_.skip("\"")) {
      const uint32_t c = read_char();
      parts.push_back(pool_.chars({{c, c}}));
    }
    return pool_.sequence(parts);
  }

  ExprId char_class() {
    in_.next();
    const bool negated = in_.skip("^");
    CharSet set;
    while (!in_.skip("]")) {
      const uint32_t low = read_char();
      uint32_t high = low;
      const size_t before = in_.position();
      if (in_.skip("-")) {
        if (in_.peek() == ']') {
          in_.seek(before);
        } else {
          high = read_char();
        }
      }
      if (low > high) in_.wrong("a range runs backwards");
      set.add(low, high);
    }
    return pool_.chars(negated ? set.negated() : set);
  }

  Utf8Reader in_;
  const Limits& limits_;
  Rules rules_;
  ExprPool& pool_;
  std::map<std::string, RuleId, std::less<>> names_;
};

}  // namespace

Rules parse_gbnf(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes) fail_usage("the grammar has more than {} bytes", limits.source_bytes);
  return GbnfParser(source, limits).run();
}

}  // namespace inferno::grammar
