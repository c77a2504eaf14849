#include "grammar/nfa.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace inferno::grammar {
namespace {

// Sets of states, each stored once, numbered in the order in which they come.
class Subsets {
 public:
  uint32_t number(std::span<const uint32_t> subset) {
    const uint64_t hash = hash_of(subset);
    size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      const uint32_t known = slots_[slot] - 1;
      if (hashes_[known] == hash && std::ranges::equal((*this)[known], subset)) return known;
    }
    slots_[slot] = size() + 1;
    hashes_.push_back(hash);
    states_.insert(states_.end(), subset.begin(), subset.end());
    ends_.push_back(states_.size());
    if (2 * hashes_.size() >= slots_.size()) grow();
    return size() - 1;
  }
  [[nodiscard]] std::span<const uint32_t> operator[](uint32_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::span(states_).subspan(begin, ends_[i] - begin);
  }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(hashes_.size()); }
  // About what they occupy, in words.
  [[nodiscard]] size_t entries() const { return states_.size() + size_t{8} * size(); }

 private:
  static uint64_t hash_of(std::span<const uint32_t> subset) {
    uint64_t hash = subset.size();
    for (const uint32_t state : subset) {
      hash = (hash ^ state) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash;
  }
  void grow() {
    std::vector<uint32_t> slots(slots_.size() * 2);
    for (uint32_t i = 0; i < size(); ++i) {
      size_t slot = hashes_[i] & (slots.size() - 1);
      while (slots[slot] != 0) slot = (slot + 1) & (slots.size() - 1);
      slots[slot] = i + 1;
    }
    slots_ = std::move(slots);
  }

  std::vector<uint32_t> states_;
  std::vector<size_t> ends_;  // (size) in states_
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(64);  // open addressing; number + 1, 0 is free
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

std::span<const uint32_t> Nfa::closure() {
  seen_.resize(states_.size());
  ++stamp_;
  reached_.clear();
  while (!open_.empty()) {
    const uint32_t id = open_.back();
    open_.pop_back();
    if (seen_[id] == stamp_) continue;
    seen_[id] = stamp_;
    const State& state = states_[id];
    if (state.kind == Kind::split) {
      open_.push_back(state.a);
      open_.push_back(state.b);
    } else if (state.kind != Kind::dead) {
      reached_.push_back(id);
    }
  }
  if (reached_.size() > 1) std::ranges::sort(reached_);
  return reached_;
}

Machine Nfa::machine(uint32_t start) {
  Machine made;
  if (make_deterministic(start, made)) return made;
  return without_empty_moves(start);
}

// The usual construction of subsets; false where they become too many.
bool Nfa::make_deterministic(uint32_t start, Machine& made) {
  Subsets subsets;
  open_ = {start};
  subsets.number(closure());
  std::vector<State> bytes;
  std::vector<State> calls;
  std::vector<int> cuts;
  for (uint32_t i = 0; i < subsets.size(); ++i) {
    if (subsets.entries() > limits_.subset_entries || subsets.size() > limits_.machine_states) return false;
    bytes.clear();
    calls.clear();
    cuts.clear();
    bool final = false;
    for (const uint32_t id : subsets[i]) {
      const State& state = states_[id];
      if (state.kind == Kind::final) final = true;
      if (state.kind == Kind::call) calls.push_back(state);
      if (state.kind != Kind::bytes) continue;
      bytes.push_back(state);
      cuts.push_back(state.low);
      cuts.push_back(state.high + 1);
    }
    made.add_state(final);
    std::ranges::sort(cuts);
    cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      for (const State& state : bytes) {
        if (state.low <= cuts[c] && cuts[c] <= state.high) open_.push_back(state.a);
      }
      if (open_.empty()) continue;
      made.add_edge(static_cast<uint8_t>(cuts[c]), static_cast<uint8_t>(cuts[c + 1] - 1), subsets.number(closure()));
    }
    std::ranges::sort(calls, {}, &State::b);
    for (size_t c = 0; c < calls.size();) {
      const RuleId rule = calls[c].b;
      for (; c < calls.size() && calls[c].b == rule; ++c) open_.push_back(calls[c].a);
      made.add_call(rule, subsets.number(closure()));
    }
  }
  return true;
}

Machine Nfa::without_empty_moves(uint32_t start) {
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
    open_ = {state.a};
    for (const uint32_t target : closure()) {
      if (state.kind == Kind::bytes) made.add_edge(state.low, state.high, number(target));
      if (state.kind == Kind::call) made.add_call(state.b, number(target));
    }
    if (made.edge_count() > limits_.machine_edges) fail_usage("the grammar is too large: a rule has too many ways on");
  };
  open_ = {start};
  const auto reached = closure();
  const std::vector<uint32_t> first(reached.begin(), reached.end());
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
