// Decimal numbers within bounds, as texts: without exponent, as a model should write them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "grammar/expression.h"
#include "grammar/machine.h"

namespace inferno::grammar {

// A number, digit by digit.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without trailing zeros

  [[nodiscard]] bool is_zero() const { return whole == "0" && fraction.empty(); }
};
[[nodiscard]] Decimal decimal_of(const nlohmann::ordered_json& number);

enum class NumberKind : uint8_t { integer, number };

// All numbers of the kind; those above a bound; those below one. `inclusive`: the bound belongs to them.
[[nodiscard]] ExprId all_decimals(ExprPool& pool, NumberKind kind);
[[nodiscard]] ExprId decimals_above(ExprPool& pool, NumberKind kind, const Decimal& bound, bool inclusive);
[[nodiscard]] ExprId decimals_below(ExprPool& pool, NumberKind kind, const Decimal& bound, bool inclusive);
// The multiples of a positive number; an Error when that takes too many states.
[[nodiscard]] Machine multiples_machine(const Decimal& of, const Limits& limits);

}  // namespace inferno::grammar
