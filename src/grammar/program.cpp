#include "grammar/program.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "grammar/nfa.h"

namespace inferno::grammar {
namespace {

std::vector<Machine> make_machines(Rules& rules, const Limits& limits) {
  std::vector<Machine> machines;
  size_t states = 0;
  size_t edges = 0;
  for (Rule& rule : rules.rules) {
    if (rule.machine) {
      machines.push_back(std::move(*rule.machine));
    } else {
      INFERNO_CHECK(rule.body.has_value());
      Nfa nfa(rules.pool, limits);
      const uint32_t begin = nfa.build(*rule.body, Nfa::kFinal);
      machines.push_back(nfa.machine(begin));
    }
    states += machines.back().states();
    edges += machines.back().edge_count();
    if (states > limits.machine_states || edges > limits.machine_edges) {
      fail_usage("the grammar is too large: more than {} states or {} edges", limits.machine_states,
                 limits.machine_edges);
    }
  }
  return machines;
}

}  // namespace

Program::Program(Rules rules, const Limits& limits) {
  std::vector<uint32_t> begins;
  {
    const std::vector<Machine> machines = make_machines(rules, limits);
    uint32_t next = 0;
    for (const Machine& machine : machines) {
      begins.push_back(next);
      next += machine.states();
    }
    join(machines, rules.start);
  }
  drop_dead_ends();
  check_left_recursion(begins, rules.rules);
  find_classes();
}

void Program::join(const std::vector<Machine>& machines, RuleId start_rule) {
  std::vector<uint32_t> begins;
  uint32_t next = 0;
  for (const Machine& machine : machines) {
    begins.push_back(next);
    next += machine.states();
  }
  start_ = root_begin_ = root_end_ = begins[start_rule];
  const bool is_called = std::ranges::any_of(machines, [&](const Machine& m) { return m.calls_rule(start_rule); });
  if (!is_called) root_end_ += machines[start_rule].states();
  states_.reserve(next + 1);
  for (size_t m = 0; m < machines.size(); ++m) {
    const Machine& machine = machines[m];
    for (uint32_t s = 0; s < machine.states(); ++s) {
      states_.push_back(
          {static_cast<uint32_t>(edges_.size()), static_cast<uint32_t>(calls_.size()), machine.is_final(s)});
      for (const ByteEdge& e : machine.edges(s)) edges_.push_back({e.low, e.high, begins[m] + e.target});
      for (const CallEdge& c : machine.calls(s)) calls_.push_back({begins[c.rule], begins[m] + c.target});
    }
  }
  states_.push_back({static_cast<uint32_t>(edges_.size()), static_cast<uint32_t>(calls_.size()), false});
}

std::vector<bool> Program::can_end(bool by_bytes) const {
  // Who has to be looked at again when a state turns out to be productive.
  const uint32_t count = states();
  std::vector<uint32_t> first(count + 1);
  const auto each_need = [&](auto use) {
    for (uint32_t s = 0; s < count; ++s) {
      if (by_bytes) {
        for (const ByteEdge& e : edges(s)) use(e.target, s);
      }
      for (const CallEdge& c : calls(s)) {
        use(c.target, s);
        use(c.rule, s);
      }
    }
  };
  each_need([&](uint32_t needed, uint32_t) { ++first[needed]; });
  uint32_t sum = 0;
  for (uint32_t& f : first) sum = f += sum;  // ends of the lists, which are filled backwards
  std::vector<uint32_t> users(sum);
  each_need([&](uint32_t needed, uint32_t user) { users[--first[needed]] = user; });

  std::vector<bool> good(count);
  std::vector<uint32_t> open;
  const auto set = [&](uint32_t s) {
    if (good[s]) return;
    good[s] = true;
    open.push_back(s);
  };
  for (uint32_t s = 0; s < count; ++s) {
    if (is_final(s)) set(s);
  }
  while (!open.empty()) {
    const uint32_t s = open.back();
    open.pop_back();
    for (uint32_t i = first[s]; i < (s + 1 < count ? first[s + 1] : sum); ++i) {
      const uint32_t user = users[i];
      if (good[user]) continue;
      const bool by_byte =
          by_bytes && std::ranges::any_of(edges(user), [&](const ByteEdge& e) { return good[e.target]; });
      const bool by_call =
          std::ranges::any_of(calls(user), [&](const CallEdge& c) { return good[c.target] && good[c.rule]; });
      if (by_byte || by_call) set(user);
    }
  }
  return good;
}

void Program::drop_dead_ends() {
  const std::vector<bool> good = can_end(true);
  if (!good[start_]) fail_usage("no text fits: conditions contradict each other, or there is nothing to choose from");
  size_t edges = 0;
  size_t calls = 0;
  for (uint32_t s = 0; s < this->states(); ++s) {
    const State state = states_[s];
    const State after = states_[s + 1];
    states_[s].edges = static_cast<uint32_t>(edges);
    states_[s].calls = static_cast<uint32_t>(calls);
    for (uint32_t i = state.edges; i < after.edges; ++i) {
      if (good[edges_[i].target]) edges_[edges++] = edges_[i];
    }
    for (uint32_t i = state.calls; i < after.calls; ++i) {
      if (good[calls_[i].target] && good[calls_[i].rule]) calls_[calls++] = calls_[i];
    }
  }
  states_.back().edges = static_cast<uint32_t>(edges);
  states_.back().calls = static_cast<uint32_t>(calls);
  edges_.resize(edges);
  calls_.resize(calls);
}

// A rule that calls itself before it has read a byte would be called without end.
void Program::check_left_recursion(const std::vector<uint32_t>& begins, const std::vector<Rule>& rules) const {
  const std::vector<bool> may_be_empty = can_end(false);
  std::unordered_map<uint32_t, size_t> rule_at;
  for (size_t r = 0; r < begins.size(); ++r) rule_at.emplace(begins[r], r);
  // Rules that a rule may call before it reads a byte.
  const auto first_calls = [&](size_t rule) {
    std::vector<size_t> called;
    std::vector<uint32_t> open = {begins[rule]};
    std::unordered_set<uint32_t> seen = {begins[rule]};
    while (!open.empty()) {
      const uint32_t s = open.back();
      open.pop_back();
      for (const CallEdge& c : calls(s)) {
        called.push_back(rule_at.at(c.rule));
        if (may_be_empty[c.rule] && seen.insert(c.target).second) open.push_back(c.target);
      }
    }
    return called;
  };
  // Depth first, without recursion: a rule that is met again while it is open calls itself.
  enum class Mark : uint8_t { fresh, open, done };
  std::vector<Mark> marks(begins.size(), Mark::fresh);
  for (size_t root = 0; root < begins.size(); ++root) {
    struct Frame {
      size_t rule;
      std::vector<size_t> called;
    };
    std::vector<Frame> path;
    const auto enter = [&](size_t rule) {
      if (marks[rule] == Mark::open) {
        fail_usage(
            "the rule \"{}\" can call itself before anything is read (left recursion); write it right-recursive "
            "or as a repetition",
            printable(rules[rule].name));
      }
      if (marks[rule] == Mark::done) return;
      marks[rule] = Mark::open;
      path.push_back({rule, first_calls(rule)});
    };
    enter(root);
    while (!path.empty()) {
      if (path.back().called.empty()) {
        marks[path.back().rule] = Mark::done;
        path.pop_back();
        continue;
      }
      const size_t next = path.back().called.back();
      path.back().called.pop_back();
      enter(next);
    }
  }
}

void Program::find_classes() {
  std::array<bool, 257> begins{};
  for (const ByteEdge& e : edges_) begins[e.low] = begins[e.high + 1U] = true;
  begins[0] = true;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins[byte]) byte_of_class_.push_back(static_cast<uint8_t>(byte));
    class_of_[byte] = static_cast<uint8_t>(byte_of_class_.size() - 1);
  }
}

size_t Program::bytes() const {
  return states_.size() * sizeof(State) + edges_.size() * sizeof(ByteEdge) + calls_.size() * sizeof(CallEdge);
}

}  // namespace inferno::grammar
