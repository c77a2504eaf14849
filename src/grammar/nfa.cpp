#include "grammar/nfa.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"

namespace inferno::grammar {
namespace {

struct SubsetHash {
  size_t operator()(const std::vector<uint32_t>& subset) const noexcept {
    uint64_t hash = subset.size();
    for (const uint32_t state : subset) hash = (hash ^ state) * 0x9E3779B97F4A7C15U + (hash >> 29);
    return hash;
  }
};

}  // namespace

Nfa::Nfa(const ExprPool& pool, const Limits& limits) : pool_(pool), limits_(limits) {
  add({Kind::final, 0, 0, 0, 0});
}

uint32_t Nfa::add(const State& state) {
  if (states_.size() >= limits_.nfa_states) {
    fail_usage("the grammar is too large: repetitions and alternatives of one rule have more than {} states",
               limits_.nfa_states);
  }
  states_.push_back(state);
  return static_cast<uint32_t>(states_.size() - 1);
}

void Nfa::close_split(uint32_t state, uint32_t a, uint32_t b) {
  states_[state].a = a;
  states_[state].b = b;
}

uint32_t Nfa::build(ExprId id, uint32_t next) {
  // What adds no state must not be repeated forever either.
  if (++work_ > 16 * limits_.nfa_states) fail_usage("the grammar is too large: a rule takes too long to write out");
  const Expr& expr = pool_[id];
  switch (expr.kind) {
    case ExprKind::empty:
      return next;
    case ExprKind::never:
      return dead_end();
    case ExprKind::literal: {
      const std::string_view text = pool_.text(expr);
      for (size_t i = text.size(); i-- > 0;) {
        const auto byte = static_cast<uint8_t>(text[i]);
        next = add({Kind::bytes, byte, byte, next, 0});
      }
      return next;
    }
    case ExprKind::range:
      return add({Kind::bytes, expr.low, expr.high, next, 0});
    case ExprKind::sequence: {
      const auto parts = pool_.parts(expr);
      for (size_t i = parts.size(); i-- > 0;) next = build(parts[i], next);
      return next;
    }
    case ExprKind::choice: {
      const auto parts = pool_.parts(expr);
      uint32_t entry = build(parts.back(), next);
      for (size_t i = parts.size() - 1; i-- > 0;) entry = split(build(parts[i], next), entry);
      return entry;
    }
    case ExprKind::repeat:
      return build_repeat(expr, next);
    case ExprKind::call:
      return add({Kind::call, 0, 0, next, expr.rule});
  }
  return next;
}

uint32_t Nfa::build_repeat(const Expr& expr, uint32_t next) {
  uint32_t entry = next;
  if (expr.most == kUnlimited) {
    entry = open_split();
    close_split(entry, build(expr.first, entry), next);
  } else {
    for (uint32_t i = expr.least; i < expr.most; ++i) entry = split(build(expr.first, entry), next);
  }
  for (uint32_t i = 0; i < expr.least; ++i) {
    const uint32_t before = build(expr.first, entry);
    if (before == entry) break;  // of nothing, as often as you like
    entry = before;
  }
  return entry;
}

Nfa::Subset Nfa::closure(std::vector<uint32_t> open) const {
  seen_.resize(states_.size());
  ++stamp_;
  Subset reached;
  while (!open.empty()) {
    const uint32_t id = open.back();
    open.pop_back();
    if (seen_[id] == stamp_) continue;
    seen_[id] = stamp_;
    const State& state = states_[id];
    if (state.kind == Kind::split) {
      open.push_back(state.a);
      open.push_back(state.b);
    } else if (state.kind != Kind::dead) {
      reached.push_back(id);
    }
  }
  std::ranges::sort(reached);
  return reached;
}

Machine Nfa::machine(uint32_t start) const {
  Machine made;
  if (make_deterministic(start, made)) return made;
  return without_empty_moves(start);
}

// The usual construction of subsets; false where they become too many.
bool Nfa::make_deterministic(uint32_t start, Machine& made) const {
  std::unordered_map<Subset, uint32_t, SubsetHash> numbers;
  std::vector<const Subset*> subsets;
  size_t entries = 0;
  const auto number = [&](std::vector<uint32_t> open) {
    Subset subset = closure(std::move(open));
    entries += subset.size() + 8;
    const auto [place, fresh] = numbers.try_emplace(std::move(subset), static_cast<uint32_t>(subsets.size()));
    if (fresh) subsets.push_back(&place->first);
    return place->second;
  };
  number({start});
  std::vector<const State*> bytes;
  std::vector<int> cuts;
  for (size_t i = 0; i < subsets.size(); ++i) {
    if (entries > limits_.subset_entries || subsets.size() > limits_.machine_states) return false;
    bytes.clear();
    cuts.clear();
    std::map<RuleId, std::vector<uint32_t>> calls;
    bool final = false;
    for (const uint32_t id : *subsets[i]) {
      const State& state = states_[id];
      if (state.kind == Kind::final) final = true;
      if (state.kind == Kind::call) calls[state.b].push_back(state.a);
      if (state.kind != Kind::bytes) continue;
      bytes.push_back(&state);
      cuts.push_back(state.low);
      cuts.push_back(state.high + 1);
    }
    made.add_state(final);
    std::ranges::sort(cuts);
    cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::vector<uint32_t> targets;
      for (const State* state : bytes) {
        if (state->low <= cuts[c] && cuts[c] <= state->high) targets.push_back(state->a);
      }
      if (targets.empty()) continue;
      made.add_edge(static_cast<uint8_t>(cuts[c]), static_cast<uint8_t>(cuts[c + 1] - 1), number(std::move(targets)));
    }
    for (auto& [rule, targets] : calls) made.add_call(rule, number(std::move(targets)));
  }
  return true;
}

Machine Nfa::without_empty_moves(uint32_t start) const {
  Machine made;
  made.set_nondeterministic();
  // Numbers of the states that matter; 0 is the beginning, which may be several of them.
  std::unordered_map<uint32_t, uint32_t> numbers;
  std::vector<uint32_t> order = {UINT32_MAX};
  const auto number = [&](uint32_t id) {
    const auto [place, fresh] = numbers.try_emplace(id, static_cast<uint32_t>(order.size()));
    if (fresh) order.push_back(id);
    return place->second;
  };
  const auto add_moves = [&](const State& state) {
    for (const uint32_t target : closure({state.a})) {
      if (state.kind == Kind::bytes) made.add_edge(state.low, state.high, number(target));
      if (state.kind == Kind::call) made.add_call(state.b, number(target));
    }
    if (made.edge_count() > limits_.machine_edges) fail_usage("the grammar is too large: a rule has too many ways on");
  };
  const Subset first = closure({start});
  made.add_state(std::ranges::count(first, kFinal) > 0);
  for (const uint32_t id : first) {
    if (id != kFinal) add_moves(states_[id]);
  }
  for (size_t i = 1; i < order.size(); ++i) {
    made.add_state(order[i] == kFinal);
    if (order[i] != kFinal) add_moves(states_[order[i]]);
  }
  return made;
}

}  // namespace inferno::grammar
