// Numbers within bounds, as texts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
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

struct DecimalBound {
  Decimal at;
  bool inclusive;  // whether `at` belongs to the range
};

// In digits, without exponent: all numbers of the kind; those above a bound; those below one.
[[nodiscard]] ExprId all_decimals(ExprPool& pool, NumberKind kind);
[[nodiscard]] ExprId decimals_above(ExprPool& pool, NumberKind kind, const DecimalBound& bound);
[[nodiscard]] ExprId decimals_below(ExprPool& pool, NumberKind kind, const DecimalBound& bound);
// With an exponent of up to two digits and one digit, not 0, before the point: 2.5e-06. The powers of ten that lie
// within the bounds as a whole: from 3 to 2000, those of 10 and 100 and what is below 10 · 10² = 1000.
[[nodiscard]] ExprId scientific_within(ExprPool& pool, const std::optional<DecimalBound>& least,
                                       const std::optional<DecimalBound>& most);
// The multiples of a positive number; an Error when that takes too many states.
[[nodiscard]] Machine multiples_machine(const Decimal& of, const Limits& limits);

}  // namespace inferno::grammar
