// One rule as a machine: states with edges over bytes and over calls of other rules.
//
// State 0 is where it begins. Edges over bytes of one state do not overlap when it is deterministic; calls of one
// state name each rule once. Stored as arrays, because the machine of a long enum has a million states.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/limits.h"

namespace inferno::grammar {

using RuleId = uint32_t;

struct ByteEdge {
  uint8_t low, high;
  uint32_t target;
};
struct CallEdge {
  RuleId rule;
  uint32_t target;
};

class Machine {
 public:
  // States are added in order, each with its edges before the next one.
  void add_state(bool final);
  void add_edge(uint8_t low, uint8_t high, uint32_t target);
  void add_call(RuleId rule, uint32_t target) { calls_.push_back({rule, target}); }

  // The rules that it calls have so much larger numbers.
  void number_calls_from(RuleId first) {
    for (CallEdge& call : calls_) call.rule += first;
  }

  [[nodiscard]] uint32_t states() const { return static_cast<uint32_t>(states_.size()); }
  [[nodiscard]] size_t edge_count() const { return edges_.size() + calls_.size(); }
  [[nodiscard]] bool is_final(uint32_t state) const { return states_[state].final; }
  [[nodiscard]] std::span<const ByteEdge> edges(uint32_t state) const;
  [[nodiscard]] std::span<const CallEdge> calls(uint32_t state) const;
  [[nodiscard]] bool has_calls() const { return !calls_.empty(); }
  [[nodiscard]] bool calls_rule(RuleId rule) const { return std::ranges::count(calls_, rule, &CallEdge::rule) > 0; }
  [[nodiscard]] bool is_deterministic() const { return deterministic_; }
  void set_nondeterministic() { deterministic_ = false; }

  // Of a deterministic machine without calls: whether it takes the whole text.
  [[nodiscard]] bool accepts(std::string_view text) const;

 private:
  struct State {
    uint32_t edges, calls;  // where its own begin
    bool final;
  };
  std::vector<State> states_;
  std::vector<ByteEdge> edges_;
  std::vector<CallEdge> calls_;
  bool deterministic_ = true;
};

// Exactly these words; an Error where they are too many. None: a machine that takes nothing.
[[nodiscard]] Machine words_machine(std::vector<std::string> words, const Limits& limits);

// The same with a byte before and after it that it has none of itself.
[[nodiscard]] Machine enclosed(const Machine& machine, uint8_t around);

// Of deterministic machines without calls; an Error where the result is too large.
[[nodiscard]] Machine intersection(const Machine& a, const Machine& b, const Limits& limits);
[[nodiscard]] Machine difference(const Machine& a, const Machine& b, const Limits& limits);
// The texts of `machine` that are from `least` to `most` texts of `one`, of which none begins another; most UINT32_MAX:
// any number.
[[nodiscard]] Machine counted(const Machine& machine, const Machine& one, uint32_t least, uint32_t most,
                              const Limits& limits);
// Whether it takes any text at all.
[[nodiscard]] bool takes_nothing(const Machine& machine);

}  // namespace inferno::grammar
