// From expressions to the machine of a rule: a nondeterministic machine, built from its end backwards, and from it a
// deterministic one where that is not too large.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/expression.h"
#include "grammar/machine.h"

namespace inferno::grammar {

class Nfa {
 public:
  static constexpr uint32_t kFinal = 0;  // the state at which the rule ends

  Nfa(const ExprPool& pool, const Limits& limits);

  // The state from which the expression leads to `next`.
  [[nodiscard]] uint32_t build(ExprId id, uint32_t next);
  // Goes on at either.
  [[nodiscard]] uint32_t split(uint32_t a, uint32_t b) { return add({Kind::split, 0, 0, a, b}); }
  // A split whose ways are set later, for loops.
  [[nodiscard]] uint32_t open_split() { return split(kFinal, kFinal); }
  void close_split(uint32_t state, uint32_t a, uint32_t b);
  // From here nothing leads on.
  [[nodiscard]] uint32_t dead_end() { return add({Kind::dead, 0, 0, 0, 0}); }

  // Deterministic where subset_entries suffice, otherwise without empty moves.
  [[nodiscard]] Machine machine(uint32_t start);

 private:
  enum class Kind : uint8_t { final, split, bytes, call, dead };
  struct State {
    Kind kind;
    uint8_t low, high;
    uint32_t a, b;  // split: both ways; bytes: a is next; call: a is next, b the rule
  };
  uint32_t add(const State& state);
  [[nodiscard]] uint32_t build_repeat(const Expr& expr, uint32_t next);
  // The states that matter (not splits) which are reached from those in open_ by empty moves, sorted; valid until the
  // next call. open_ is empty afterwards.
  [[nodiscard]] std::span<const uint32_t> closure();
  [[nodiscard]] bool make_deterministic(uint32_t start, Machine& made);
  [[nodiscard]] Machine without_empty_moves(uint32_t start);

  const ExprPool& pool_;
  const Limits& limits_;
  std::vector<State> states_;
  size_t work_ = 0;
  std::vector<uint32_t> open_, reached_;  // of closure()
  std::vector<uint32_t> seen_;            // (states) stamp of the closure that saw it last
  uint32_t stamp_ = 0;
};

}  // namespace inferno::grammar
