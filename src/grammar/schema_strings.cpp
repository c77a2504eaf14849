// Strings of a JSON schema: lengths, patterns and formats.
#include <algorithm>

#include "grammar/regex.h"
#include "grammar/schema_writer.h"

namespace inferno::grammar {
namespace {

// Longer runs of characters are counted in blocks: a rule of one block is called again and again.
constexpr uint32_t kBlock = 512;
// No text is as long: such a limit is none.
constexpr uint32_t kEndless = 1U << 31;

}  // namespace

ExprId SchemaWriter::counted_chars(ExprId one, uint32_t least, uint32_t most) {
  if (most >= kEndless) most = kUnlimited;
  if (least > most) return pool_.never();
  const auto block = [&] { return pool_.call(rules_.define("characters", pool_.repeat(one, kBlock, kBlock))); };
  std::vector<ExprId> parts;
  if (least > kBlock) {
    parts.push_back(pool_.repeat(block(), least / kBlock, least / kBlock));
    if (most != kUnlimited) most -= least / kBlock * kBlock;
    least %= kBlock;
  }
  if (most == kUnlimited || most <= 2 * kBlock) {
    parts.push_back(pool_.repeat(one, least, most));
  } else {
    const uint32_t more = most - least;
    parts.push_back(pool_.repeat(one, least, least));
    parts.push_back(pool_.repeat(block(), 0, more / kBlock));
    // After all blocks fewer may follow than after some.
    parts.push_back(pool_.repeat(one, 0, std::min(kBlock - 1, more % kBlock)));
    const ExprId full = pool_.sequence(parts);
    parts.pop_back();
    parts.back() = pool_.repeat(block(), 0, more / kBlock - 1);
    parts.push_back(pool_.repeat(one, 0, kBlock - 1));
    return pool_.choice({full, pool_.sequence(parts)});
  }
  return pool_.sequence(parts);
}

const Machine& SchemaWriter::pattern_machine(const std::string& pattern, bool whole) {
  const auto known = patterns_.find({pattern, whole});
  if (known != patterns_.end()) return known->second;
  const WriteChars write = [&](const CharSet& set) { return text_.plain_chars(set); };
  const RegexMatch match = whole ? RegexMatch::whole : RegexMatch::part;
  Machine machine = to_machine(parse_regex(pattern, match, pool_, write, limits_));
  return patterns_.emplace(std::pair(pattern, whole), std::move(machine)).first->second;
}

Machine SchemaWriter::string_machine(const ValueSpec& spec) {
  std::optional<Machine> machine;
  const auto restrict_to = [&](Machine other) {
    machine = machine ? intersection(*machine, other, limits_) : std::move(other);
  };
  for (const std::string& pattern : spec.patterns) restrict_to(pattern_machine(pattern, false));
  for (const std::string& pattern : spec.formats) restrict_to(pattern_machine(pattern, true));
  if (!machine || spec.min_length > 0 || spec.max_length < kEndless) {
    const ExprId one = text_.plain_chars(CharSet::all());
    restrict_to(
        to_machine(pool_.repeat(one, spec.min_length, spec.max_length < kEndless ? spec.max_length : kUnlimited)));
  }
  return std::move(*machine);
}

ExprId SchemaWriter::string(const ValueSpec& spec) {
  const ExprId quote = pool_.literal("\"");
  if (spec.patterns.empty() && spec.formats.empty()) {
    if (spec.min_length == 0 && spec.max_length >= kEndless) return text_.any_string();
    return pool_.sequence({quote, counted_chars(text_.any_char(), spec.min_length, spec.max_length), quote});
  }
  // With its quotes: where it ends is then the only place at which a token may leave it.
  return pool_.call(rules_.define("pattern", enclosed(string_machine(spec), '"')));
}

}  // namespace inferno::grammar
