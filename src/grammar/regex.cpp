#include "grammar/regex.h"

#include <algorithm>

#include "base/error.h"
#include "grammar/regex_syntax.h"

namespace inferno::grammar {
namespace {

using Kind = RegexNode::Kind;

bool has_anchor(const RegexNode& node) {
  return node.kind == Kind::begin || node.kind == Kind::end || std::ranges::any_of(node.parts, has_anchor);
}

class Writer {
 public:
  Writer(RegexMatch match, ExprPool& pool, const WriteChars& write, const Limits& limits)
      : pool_(pool), write_(write), limits_(limits) {
    rest_ = match == RegexMatch::part ? pool.repeat(write(CharSet::all()), 0, kUnlimited) : pool.empty();
  }

  // A tree in which anchors may stand at the ends.
  ExprId whole(const RegexNode& node) {
    if (++texts_ > limits_.alternatives) fail_usage("the pattern has too many places for its ^ and $");
    if (node.kind == Kind::choice) {
      std::vector<ExprId> ways;
      for (const RegexNode& part : node.parts) ways.push_back(whole(part));
      return pool_.choice(ways);
    }
    std::vector<const RegexNode*> parts;
    flatten(node, parts);
    // An alternative with an anchor decides for the whole text: one text for each.
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i]->kind != Kind::choice || !has_anchor(*parts[i])) continue;
      std::vector<ExprId> ways;
      for (const RegexNode& way : parts[i]->parts) {
        RegexNode text{.kind = Kind::sequence};
        for (size_t p = 0; p < parts.size(); ++p) text.parts.push_back(p == i ? way : *parts[p]);
        ways.push_back(whole(text));
      }
      return pool_.choice(ways);
    }
    return anchored(parts);
  }

 private:
  static void flatten(const RegexNode& node, std::vector<const RegexNode*>& parts) {
    if (node.kind == Kind::sequence) {
      for (const RegexNode& part : node.parts) flatten(part, parts);
    } else {
      parts.push_back(&node);
    }
  }

  ExprId anchored(std::span<const RegexNode* const> parts) {
    size_t first = 0;
    size_t last = parts.size();
    while (first < last && parts[first]->kind == Kind::begin) ++first;
    while (last > first && parts[last - 1]->kind == Kind::end) --last;
    std::vector<ExprId> written;
    if (first == 0) written.push_back(rest_);
    for (const RegexNode* part : parts.subspan(first, last - first)) written.push_back(inner(*part));
    if (last == parts.size()) written.push_back(rest_);
    return pool_.sequence(written);
  }

  ExprId inner(const RegexNode& node) {
    std::vector<ExprId> parts;
    switch (node.kind) {
      case Kind::begin:
      case Kind::end:
        fail_usage("the pattern has a ^ or $ that is not at its end, which is not supported");
      case Kind::chars:
        return node.chars.empty() ? pool_.never() : write_(node.chars);
      case Kind::repeat:
        return pool_.repeat(inner(node.parts[0]), node.least, node.most);
      case Kind::sequence:
      case Kind::choice:
        for (const RegexNode& part : node.parts) parts.push_back(inner(part));
        return node.kind == Kind::sequence ? pool_.sequence(parts) : pool_.choice(parts);
    }
    return pool_.never();
  }

  ExprPool& pool_;
  const WriteChars& write_;
  const Limits& limits_;
  ExprId rest_;  // before and after a pattern that is somewhere in the text
  size_t texts_ = 0;
};

}  // namespace

ExprId parse_regex(std::string_view pattern, RegexMatch match, ExprPool& pool, const WriteChars& write,
                   const Limits& limits) {
  if (pattern.size() > limits.source_bytes) fail_usage("the pattern has more than {} bytes", limits.source_bytes);
  const RegexNode tree = parse_regex_syntax(pattern, limits);
  return Writer(match, pool, write, limits).whole(tree);
}

}  // namespace inferno::grammar
