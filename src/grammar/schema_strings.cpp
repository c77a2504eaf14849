// Strings of a JSON schema: lengths, patterns and formats.
#include <algorithm>
#include <map>
#include <mutex>

#include "grammar/regex.h"
#include "grammar/schema_writer.h"

namespace inferno::grammar {
namespace {

// Longer runs of characters are counted in blocks: a rule of one block is called again and again.
constexpr uint32_t kBlock = 8192;
// So many characters are written out, in all their forms, where any number may follow.
constexpr uint32_t kFew = 16;
// Nobody waits for longer texts.
constexpr uint32_t kLongest = 1U << 24;

// A machine that calls nothing, so that it is the same for all schemas.
template <typename Write>
Machine shared_machine(Write write) {
  const Limits limits;
  Rules rules(limits);
  JsonText text(rules);
  Nfa nfa(rules.pool, limits);
  const uint32_t begin = nfa.build(write(rules.pool, text, limits), Nfa::kFinal);
  Machine machine = nfa.machine(begin);
  INFERNO_CHECK(machine.is_deterministic());
  return machine;
}

// The machine of a format's pattern, made once for all schemas: some are large.
const Machine& format_machine(const std::string& pattern) {
  static std::mutex mutex;
  static std::map<std::string, Machine> made;
  const std::scoped_lock lock(mutex);
  const auto known = made.find(pattern);
  if (known != made.end()) return known->second;
  Machine machine = shared_machine([&](ExprPool& pool, JsonText& text, const Limits& limits) {
    const WriteChars write = [&](const CharSet& set) { return text.plain_chars(set); };
    return parse_regex(pattern, RegexMatch::whole, pool, write, limits);
  });
  return made.emplace(pattern, std::move(machine)).first->second;
}

// One character of a string in its plain form, and any number of them.
const Machine& char_machine() {
  static const Machine kMachine =
      shared_machine([](ExprPool&, JsonText& text, const Limits&) { return text.plain_chars(CharSet::all()); });
  return kMachine;
}
const Machine& chars_machine() {
  static const Machine kMachine = shared_machine([](ExprPool& pool, JsonText& text, const Limits&) {
    return pool.repeat(text.plain_chars(CharSet::all()), 0, kUnlimited);
  });
  return kMachine;
}

}  // namespace

// One state for each count. Characters that are not one byte are a call: so states are few, and a step within a
// character does not depend on the count.
Machine SchemaWriter::counting_machine(uint32_t least, uint32_t most, bool quoted) {
  const uint32_t last = most == kUnlimited ? least : most;
  const RuleId long_char = text_.long_char();
  Machine machine;
  if (quoted) {
    machine.add_state(false);
    machine.add_edge('"', '"', 1);
  }
  const uint32_t first = machine.states();
  for (uint32_t count = 0; count <= last; ++count) {
    const bool may_end = count >= least;
    const bool may_go_on = count < last || most == kUnlimited;
    const uint32_t next = first + std::min(count + 1, last);
    machine.add_state(may_end && !quoted);
    if (may_end && quoted) machine.add_edge('"', '"', first + last + 1);
    if (!may_go_on) continue;
    for (const CharRange& range : JsonText::short_chars().ranges()) {
      machine.add_edge(static_cast<uint8_t>(range.low), static_cast<uint8_t>(range.high), next);
    }
    machine.add_call(long_char, next);
  }
  if (quoted) machine.add_state(true);
  return machine;
}

ExprId SchemaWriter::counted_string(uint32_t least, uint32_t most) {
  if (most >= kEndless) most = kUnlimited;
  if (least > most) return pool_.never();
  const auto known = counted_strings_.find({least, most});
  if (known != counted_strings_.end()) return known->second;
  if (least > kLongest) fail_usage("a string of {} characters is too long", least);
  ExprId made = 0;
  if (most == kUnlimited && least <= kFew) {
    const ExprId quote = pool_.literal("\"");
    const ExprId chars = pool_.repeat(text_.any_char(), least, kUnlimited);
    made = pool_.call(rules_.define("string", pool_.sequence({quote, chars, quote})));
  } else if (least <= 2 * kBlock && (most == kUnlimited || most <= 2 * kBlock)) {
    made = pool_.call(rules_.define("string", counting_machine(least, most, true)));
  } else {
    const ExprId quote = pool_.literal("\"");
    made = pool_.call(rules_.define("string", pool_.sequence({quote, chars_in_blocks(least, most), quote})));
  }
  counted_strings_.emplace(std::pair(least, most), made);
  return made;
}

ExprId SchemaWriter::chars_in_blocks(uint32_t least, uint32_t most) {
  const auto chars = [&](uint32_t from, uint32_t to) {
    return pool_.call(rules_.define("characters", counting_machine(from, to, false)));
  };
  const ExprId block = chars(kBlock, kBlock);
  std::vector<ExprId> parts;
  const uint32_t whole = least / kBlock;
  if (whole > 0) parts.push_back(pool_.repeat(block, whole, whole));
  least -= whole * kBlock;
  if (most == kUnlimited) {
    parts.push_back(chars(least, kUnlimited));
    return pool_.sequence(parts);
  }
  if (least > 0) parts.push_back(chars(least, least));
  const uint32_t more = most - whole * kBlock - least;
  // After all blocks fewer may follow than after some.
  std::vector<ExprId> full = parts;
  full.push_back(pool_.repeat(block, more / kBlock, more / kBlock));
  full.push_back(chars(0, more % kBlock));
  if (more < kBlock) return pool_.sequence(full);
  parts.push_back(pool_.repeat(block, 0, more / kBlock - 1));
  parts.push_back(chars(0, kBlock - 1));
  return pool_.choice({pool_.sequence(full), pool_.sequence(parts)});
}

const Machine& SchemaWriter::pattern_machine(const std::string& pattern, bool whole) {
  if (whole) return format_machine(pattern);
  const auto known = patterns_.find(pattern);
  if (known != patterns_.end()) return known->second;
  const WriteChars write = [&](const CharSet& set) { return text_.plain_chars(set); };
  Machine machine = to_machine(parse_regex(pattern, RegexMatch::part, pool_, write, limits_));
  return patterns_.emplace(pattern, std::move(machine)).first->second;
}

Machine SchemaWriter::string_machine(const ValueSpec& spec) {
  std::optional<Machine> machine;
  const auto restrict_to = [&](const Machine& other) {
    machine = machine ? intersection(*machine, other, limits_) : other;
  };
  for (const std::string& pattern : spec.patterns) restrict_to(pattern_machine(pattern, false));
  for (const std::string& pattern : spec.formats) restrict_to(pattern_machine(pattern, true));
  if (!machine) machine = chars_machine();
  if (spec.min_length == 0 && spec.max_length >= kEndless) return std::move(*machine);
  const uint32_t most = spec.max_length < kEndless ? spec.max_length : kUnlimited;
  if (spec.min_length > most) return words_machine({}, limits_);
  return counted(*machine, char_machine(), spec.min_length, most, limits_);
}

ExprId SchemaWriter::string(const ValueSpec& spec) {
  if (spec.patterns.empty() && spec.formats.empty()) {
    if (spec.min_length == 0 && spec.max_length >= kEndless) return text_.any_string();
    return counted_string(spec.min_length, spec.max_length);
  }
  // With its quotes: where it ends is then the only place at which a token may leave it.
  return pool_.call(rules_.define("pattern", enclosed(string_machine(spec), '"')));
}

}  // namespace inferno::grammar
