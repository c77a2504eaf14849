#include "grammar/machine.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

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

// ---- products

namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Both machines at once. A pair whose second state is kNone has left the second one.
class Product {
 public:
  Product(const Machine& a, const Machine& b, bool subtract, const Limits& limits)
      : a_(a), b_(b), subtract_(subtract), limits_(limits) {
    INFERNO_CHECK(a.is_deterministic() && b.is_deterministic() && !a.has_calls() && !b.has_calls());
  }

  Machine run() {
    number(0, 0);
    // add() finds more of them.
    size_t next = 0;
    while (next < pairs_.size()) {
      const auto [a, b] = pairs_[next++];
      add(a, b);
    }
    return std::move(made_);
  }

 private:
  uint32_t number(uint32_t a, uint32_t b) {
    const auto [place, fresh] = numbers_.try_emplace(uint64_t{a} << 32 | b, static_cast<uint32_t>(pairs_.size()));
    if (fresh) {
      if (pairs_.size() >= limits_.machine_states / 4)
        fail_usage("the conditions on one value are too complex together");
      pairs_.emplace_back(a, b);
    }
    return place->second;
  }

  void add(uint32_t a, uint32_t b) {
    const bool in_b = b != kNone && b_.is_final(b);
    made_.add_state(a_.is_final(a) && in_b != subtract_);
    for (const ByteEdge& edge : a_.edges(a)) {
      int next = edge.low;
      if (b != kNone) {
        for (const ByteEdge& other : b_.edges(b)) {
          const int low = std::max(next, int{other.low});
          const int high = std::min<int>(edge.high, other.high);
          if (low > high) continue;
          alone(next, low - 1, edge.target);
          made_.add_edge(static_cast<uint8_t>(low), static_cast<uint8_t>(high), number(edge.target, other.target));
          next = high + 1;
        }
      }
      alone(next, edge.high, edge.target);
    }
  }
  // Bytes that the first machine takes alone.
  void alone(int low, int high, uint32_t target) {
    if (!subtract_ || low > high) return;
    made_.add_edge(static_cast<uint8_t>(low), static_cast<uint8_t>(high), number(target, kNone));
  }

  const Machine& a_;
  const Machine& b_;
  bool subtract_;
  const Limits& limits_;
  Machine made_;
  std::vector<std::pair<uint32_t, uint32_t>> pairs_;
  std::unordered_map<uint64_t, uint32_t> numbers_;
};

}  // namespace

Machine intersection(const Machine& a, const Machine& b, const Limits& limits) {
  return Product(a, b, false, limits).run();
}

Machine difference(const Machine& a, const Machine& b, const Limits& limits) {
  return Product(a, b, true, limits).run();
}

bool takes_nothing(const Machine& machine) {
  std::vector<bool> seen(machine.states());
  std::vector<uint32_t> open = {0};
  seen[0] = true;
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    if (machine.is_final(state)) return false;
    for (const ByteEdge& edge : machine.edges(state)) {
      if (seen[edge.target]) continue;
      seen[edge.target] = true;
      open.push_back(edge.target);
    }
  }
  return true;
}

}  // namespace inferno::grammar
