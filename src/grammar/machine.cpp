#include "grammar/machine.h"

#include <algorithm>
#include <deque>

#include "base/error.h"

namespace inferno::grammar {

void Machine::add_state(bool final) {
  states_.push_back({static_cast<uint32_t>(edges_.size()), static_cast<uint32_t>(calls_.size()), final});
}

void Machine::add_edge(uint8_t low, uint8_t high, uint32_t target) {
  const bool continues =
      edges_.size() > states_.back().edges && edges_.back().target == target && edges_.back().high + 1 == low;
  if (continues) {
    edges_.back().high = high;
  } else {
    edges_.push_back({low, high, target});
  }
}

std::span<const ByteEdge> Machine::edges(uint32_t state) const {
  const size_t end = state + 1 < states_.size() ? states_[state + 1].edges : edges_.size();
  return std::span(edges_).subspan(states_[state].edges, end - states_[state].edges);
}

std::span<const CallEdge> Machine::calls(uint32_t state) const {
  const size_t end = state + 1 < states_.size() ? states_[state + 1].calls : calls_.size();
  return std::span(calls_).subspan(states_[state].calls, end - states_[state].calls);
}

bool Machine::accepts(std::string_view text) const {
  uint32_t state = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const auto own = edges(state);
    const auto edge = std::ranges::find_if(own, [&](const ByteEdge& e) { return e.low <= byte && byte <= e.high; });
    if (edge == own.end()) return false;
    state = edge->target;
  }
  return is_final(state);
}

// ---- words

Machine words_machine(std::vector<std::string> words, const Limits& limits) {
  std::ranges::sort(words);
  const auto repeated = std::ranges::unique(words);
  words.erase(repeated.begin(), repeated.end());
  // Breadth first: a state is a range of words that begin alike, and how many bytes they have in common.
  struct Range {
    size_t begin, end, depth;
  };
  Machine machine;
  std::deque<Range> open = {{0, words.size(), 0}};
  uint32_t known = 1;
  while (!open.empty()) {
    Range range = open.front();
    open.pop_front();
    const bool final = range.begin < range.end && words[range.begin].size() == range.depth;
    machine.add_state(final);
    if (final) ++range.begin;
    while (range.begin < range.end) {
      const char c = words[range.begin][range.depth];
      size_t end = range.begin;
      while (end < range.end && words[end][range.depth] == c) ++end;
      machine.add_edge(static_cast<uint8_t>(c), static_cast<uint8_t>(c), known++);
      open.push_back({range.begin, end, range.depth + 1});
      range.begin = end;
    }
    if (known > limits.machine_states) fail_usage("the values to choose from are too many or too long");
  }
  return machine;
}

Machine enclosed(const Machine& machine, uint8_t around) {
  Machine made;
  const uint32_t last = machine.states() + 1;
  made.add_state(false);
  made.add_edge(around, around, 1);
  for (uint32_t s = 0; s < machine.states(); ++s) {
    made.add_state(false);
    for (const ByteEdge& edge : machine.edges(s)) made.add_edge(edge.low, edge.high, edge.target + 1);
    if (machine.is_final(s)) made.add_edge(around, around, last);
  }
  made.add_state(true);
  return made;
}

}  // namespace inferno::grammar
