// All machines of a grammar with one numbering of states, and nothing in it that leads nowhere: from every state that
// can be reached the text can be completed. Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/limits.h"
#include "grammar/machine.h"
#include "grammar/rules.h"

namespace inferno::grammar {

class Program {
 public:
  // An Error when the grammar is too large, a rule can call itself before a byte is read, or no text fits it.
  Program(Rules rules, const Limits& limits);

  [[nodiscard]] uint32_t start() const { return start_; }
  [[nodiscard]] uint32_t states() const { return static_cast<uint32_t>(states_.size() - 1); }
  [[nodiscard]] bool is_final(uint32_t state) const { return states_[state].final; }
  // Of the rule a text begins with, where nothing calls that rule: there is nothing to return to.
  [[nodiscard]] bool is_outermost(uint32_t state) const { return state >= root_begin_ && state < root_end_; }
  // Nothing more happens there: a call that returns to it need not return.
  [[nodiscard]] bool only_ends(uint32_t state) const {
    return is_final(state) && edges(state).empty() && calls(state).empty();
  }
  [[nodiscard]] std::span<const ByteEdge> edges(uint32_t state) const {
    return std::span(edges_).subspan(states_[state].edges, states_[state + 1].edges - states_[state].edges);
  }
  // Of a call, `rule` is the state where the called rule begins.
  [[nodiscard]] std::span<const CallEdge> calls(uint32_t state) const {
    return std::span(calls_).subspan(states_[state].calls, states_[state + 1].calls - states_[state].calls);
  }

  // Bytes that no edge tells apart are one class.
  [[nodiscard]] uint32_t classes() const { return static_cast<uint32_t>(byte_of_class_.size()); }
  [[nodiscard]] uint32_t class_of(uint8_t byte) const { return class_of_[byte]; }
  [[nodiscard]] uint8_t byte_of(uint32_t byte_class) const { return byte_of_class_[byte_class]; }
  [[nodiscard]] size_t bytes() const;

 private:
  struct State {
    uint32_t edges, calls;
    bool final;
  };
  void join(const std::vector<Machine>& machines, RuleId start_rule);
  // [state]: its rule can be completed from here; without `by_bytes` by calls alone, without reading anything.
  [[nodiscard]] std::vector<bool> can_end(bool by_bytes) const;
  void drop_dead_ends();
  void check_left_recursion(const std::vector<uint32_t>& begins, const std::vector<Rule>& rules) const;
  void find_classes();

  std::vector<State> states_;  // one more than there are
  std::vector<ByteEdge> edges_;
  std::vector<CallEdge> calls_;
  uint32_t start_ = 0;
  uint32_t root_begin_ = 0, root_end_ = 0;
  std::array<uint8_t, 256> class_of_{};
  std::vector<uint8_t> byte_of_class_;
};

}  // namespace inferno::grammar
