// Machines that read a text together: what both take, what only the first one takes, and texts that are counted.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "grammar/machine.h"

namespace inferno::grammar {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// So many texts of a machine one after the other, without writing them out: none of them begins another one.
class Counted {
 public:
  Counted(const Machine& one, uint32_t least, uint32_t most) : one_(one), least_(least), most_(most) {
    INFERNO_CHECK(one.is_deterministic() && !one.has_calls());
    for (uint32_t s = 0; s < one.states(); ++s) INFERNO_CHECK(!one.is_final(s) || one.edges(s).empty());
  }

  // A state is the count of texts before it, times the states of one, plus its state in one.
  [[nodiscard]] bool is_final(uint32_t state) const {
    return state % one_.states() == 0 && state / one_.states() >= least_;
  }
  [[nodiscard]] std::span<const ByteEdge> edges(uint32_t state) {
    edges_.clear();
    const uint32_t count = state / one_.states();
    if (count == most_) return edges_;
    const bool counts_on = most_ != UINT32_MAX || count < least_;
    for (const ByteEdge& edge : one_.edges(state % one_.states())) {
      const bool ends = one_.is_final(edge.target);
      const uint32_t at = count + (ends && counts_on ? 1 : 0);
      edges_.push_back({edge.low, edge.high, at * one_.states() + (ends ? 0 : edge.target)});
    }
    return edges_;
  }

 private:
  const Machine& one_;
  uint32_t least_, most_;
  std::vector<ByteEdge> edges_;
};

// Both machines at once. A pair whose second state is kNone has left the second one.
template <typename Second>
class Product {
 public:
  Product(const Machine& a, Second& b, bool subtract, const Limits& limits)
      : a_(a), b_(b), subtract_(subtract), limits_(limits) {
    INFERNO_CHECK(a.is_deterministic() && !a.has_calls());
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
  Second& b_;
  bool subtract_;
  const Limits& limits_;
  Machine made_;
  std::vector<std::pair<uint32_t, uint32_t>> pairs_;
  std::unordered_map<uint64_t, uint32_t> numbers_;
};

}  // namespace

Machine intersection(const Machine& a, const Machine& b, const Limits& limits) {
  INFERNO_CHECK(b.is_deterministic() && !b.has_calls());
  return Product(a, b, false, limits).run();
}

Machine difference(const Machine& a, const Machine& b, const Limits& limits) {
  INFERNO_CHECK(b.is_deterministic() && !b.has_calls());
  return Product(a, b, true, limits).run();
}

Machine counted(const Machine& machine, const Machine& one, uint32_t least, uint32_t most, const Limits& limits) {
  // Counts within what numbers of states can hold; where they are reached, the product has grown too large long before.
  const uint32_t highest = UINT32_MAX / one.states() - 1;
  if (least > highest || (most != UINT32_MAX && most > highest)) {
    fail_usage("the lengths of one value are too large to be counted");
  }
  Counted texts(one, least, most);
  return Product(machine, texts, false, limits).run();
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
