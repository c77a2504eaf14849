// Machines that read a text together: what both take, what only the first one takes, and texts that are counted.
#include <algorithm>
#include <vector>

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

// Pairs of states, each stored once, numbered in the order in which they come.
class Pairs {
 public:
  struct Pair {
    uint32_t a, b;
  };
  uint32_t number(uint32_t a, uint32_t b) {
    size_t slot = slot_of(a, b);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      const Pair& known = pairs_[slots_[slot] - 1];
      if (known.a == a && known.b == b) return slots_[slot] - 1;
    }
    pairs_.push_back({a, b});
    slots_[slot] = size();
    if (2 * pairs_.size() >= slots_.size()) grow();
    return size() - 1;
  }
  [[nodiscard]] Pair operator[](uint32_t i) const { return pairs_[i]; }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(pairs_.size()); }

 private:
  [[nodiscard]] size_t slot_of(uint32_t a, uint32_t b) const {
    const uint64_t hash = (uint64_t{a} << 32 | b) * 0x9E3779B97F4A7C15U;
    return (hash ^ hash >> 32) & (slots_.size() - 1);
  }
  void grow() {
    slots_.assign(slots_.size() * 2, 0);
    for (uint32_t i = 0; i < size(); ++i) {
      size_t slot = slot_of(pairs_[i].a, pairs_[i].b);
      while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = i + 1;
    }
  }

  std::vector<Pair> pairs_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(256);  // open addressing; number + 1, 0 is free
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
    for (uint32_t next = 0; next < pairs_.size(); ++next) add(pairs_[next].a, pairs_[next].b);
    return std::move(made_);
  }

 private:
  uint32_t number(uint32_t a, uint32_t b) {
    const uint32_t found = pairs_.number(a, b);
    if (found >= limits_.machine_states / 4) fail_usage("the conditions on one value are too complex together");
    return found;
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
  Pairs pairs_;
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
