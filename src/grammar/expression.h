// What the front ends write: expressions over bytes and rules, by number in one pool.
//
// The pool joins what is trivial (a sequence of one, a choice of none), so front ends need no special cases. Too many
// expressions are an Error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/char_set.h"
#include "grammar/limits.h"
#include "grammar/machine.h"

namespace inferno::grammar {

using ExprId = uint32_t;
inline constexpr uint32_t kUnlimited = UINT32_MAX;

enum class ExprKind : uint8_t { empty, never, literal, range, sequence, choice, repeat, call };

struct Expr {
  ExprKind kind;
  uint8_t low = 0, high = 0;      // range
  uint32_t first = 0, count = 0;  // sequence, choice: in the pool's lists; literal: its text; repeat: its body
  uint32_t least = 0, most = 0;   // repeat
  RuleId rule = 0;                // call
};

class ExprPool {
 public:
  explicit ExprPool(const Limits& limits) : limits_(limits) {}

  [[nodiscard]] ExprId empty() { return add({.kind = ExprKind::empty}); }
  [[nodiscard]] ExprId never() { return add({.kind = ExprKind::never}); }
  [[nodiscard]] ExprId literal(std::string_view text);
  [[nodiscard]] ExprId range(uint8_t low, uint8_t high) {
    return add({.kind = ExprKind::range, .low = low, .high = high});
  }
  [[nodiscard]] ExprId sequence(std::span<const ExprId> parts);
  [[nodiscard]] ExprId sequence(std::initializer_list<ExprId> parts) {
    return sequence(std::span(parts.begin(), parts.size()));
  }
  [[nodiscard]] ExprId choice(std::span<const ExprId> parts);
  [[nodiscard]] ExprId choice(std::initializer_list<ExprId> parts) {
    return choice(std::span(parts.begin(), parts.size()));
  }
  [[nodiscard]] ExprId repeat(ExprId body, uint32_t least, uint32_t most);
  [[nodiscard]] ExprId optional(ExprId body) { return repeat(body, 0, 1); }
  [[nodiscard]] ExprId call(RuleId rule) { return add({.kind = ExprKind::call, .rule = rule}); }
  // The expressions of another pool, whose calls are of rules numbered from `rules` on; what is added to their ids.
  [[nodiscard]] ExprId append(const ExprPool& other, RuleId rules);
  // Any one of these characters, in UTF-8.
  [[nodiscard]] ExprId chars(const CharSet& set);

  [[nodiscard]] const Expr& operator[](ExprId id) const { return exprs_[id]; }
  [[nodiscard]] std::span<const ExprId> parts(const Expr& e) const {
    return std::span(lists_).subspan(e.first, e.count);
  }
  [[nodiscard]] std::string_view text(const Expr& e) const { return std::string_view(texts_).substr(e.first, e.count); }

 private:
  ExprId add(const Expr& e);
  ExprId list(ExprKind kind, std::span<const ExprId> parts);

  Limits limits_;
  std::vector<Expr> exprs_;
  std::vector<ExprId> lists_;
  std::string texts_;
};

}  // namespace inferno::grammar
