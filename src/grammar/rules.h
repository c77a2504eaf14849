// A grammar as the front ends leave it: rules, each an expression or a machine, and the one a text begins with.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expression.h"
#include "grammar/machine.h"

namespace inferno::grammar {

struct Rule {
  std::string name;  // for messages
  std::optional<ExprId> body;
  std::optional<Machine> machine;  // instead of a body
};

struct Rules {
  explicit Rules(const Limits& limits) : pool(limits) {}

  // Defined later by its body or machine.
  [[nodiscard]] RuleId declare(std::string name) {
    rules.push_back({.name = std::move(name), .body = {}, .machine = {}});
    return static_cast<RuleId>(rules.size() - 1);
  }
  [[nodiscard]] RuleId define(std::string name, ExprId body) {
    const RuleId rule = declare(std::move(name));
    rules[rule].body = body;
    return rule;
  }
  [[nodiscard]] RuleId define(std::string name, Machine machine) {
    const RuleId rule = declare(std::move(name));
    rules[rule].machine = std::move(machine);
    return rule;
  }

  // All rules of another grammar; the number of the one it begins with.
  [[nodiscard]] RuleId add(Rules other) {
    const auto first = static_cast<RuleId>(rules.size());
    const ExprId exprs = pool.append(other.pool, first);
    for (Rule& rule : other.rules) {
      if (rule.body) *rule.body += exprs;
      if (rule.machine) rule.machine->number_calls_from(first);
      rules.push_back(std::move(rule));
    }
    return first + other.start;
  }

  ExprPool pool;
  std::vector<Rule> rules;
  RuleId start = 0;
};

}  // namespace inferno::grammar
