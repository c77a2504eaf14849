#include "grammar/number_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace inferno::grammar {

Decimal decimal_of(const nlohmann::ordered_json& number) {
  // The shortest text that means the same number: what its author wrote.
  std::string text = number.is_number_float() ? fmt::format("{}", number.get<double>()) : number.dump();
  Decimal result;
  result.negative = text.starts_with('-');
  if (result.negative) text.erase(0, 1);
  int64_t exponent = 0;
  if (const size_t e = text.find('e'); e != std::string::npos) {
    std::string_view digits = std::string_view(text).substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    exponent = parse_int(digits).value_or(0);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  int64_t whole = static_cast<int64_t>(point) + exponent;  // how many digits are before the point
  if (whole < 0) {
    digits.insert(0, static_cast<size_t>(-whole), '0');
    whole = 0;
  }
  if (static_cast<size_t>(whole) > digits.size()) digits.append(static_cast<size_t>(whole) - digits.size(), '0');
  result.whole = digits.substr(0, static_cast<size_t>(whole));
  result.fraction = digits.substr(static_cast<size_t>(whole));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole.push_back('0');
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  return result;
}

namespace {

// Numbers without sign.
class Magnitudes {
 public:
  Magnitudes(ExprPool& pool, NumberKind kind) : pool_(pool), kind_(kind) {}

  [[nodiscard]] ExprId all() {
    return pool_.sequence({pool_.choice({pool_.literal("0"), long_whole(0, kUnlimited)}), any_fraction()});
  }
  [[nodiscard]] ExprId above(const Decimal& b, bool inclusive) {
    std::vector<ExprId> ways = {pool_.sequence({whole_above(b.whole), any_fraction()})};
    if (kind_ == NumberKind::integer) {
      if (inclusive && b.fraction.empty()) ways.push_back(pool_.literal(b.whole));
    } else {
      ways.push_back(pool_.sequence({pool_.literal(b.whole), fraction_above(b.fraction)}));
      if (inclusive) ways.push_back(equal(b));
    }
    return pool_.choice(ways);
  }
  [[nodiscard]] ExprId below(const Decimal& b, bool inclusive) {
    std::vector<ExprId> ways = {pool_.sequence({whole_below(b.whole), any_fraction()})};
    if (kind_ == NumberKind::integer) {
      if (inclusive || !b.fraction.empty()) ways.push_back(pool_.literal(b.whole));
    } else {
      ways.push_back(pool_.sequence({pool_.literal(b.whole), fraction_below(b.fraction)}));
      if (inclusive) ways.push_back(equal(b));
    }
    return pool_.choice(ways);
  }

 private:
  ExprId digits(uint32_t least, uint32_t most) { return pool_.repeat(pool_.range('0', '9'), least, most); }
  // A digit from 1 and `least` to `most` more.
  ExprId long_whole(uint32_t least, uint32_t most) {
    return pool_.sequence({pool_.range('1', '9'), digits(least, most)});
  }
  ExprId digit_range(char low, char high) {
    return low > high ? pool_.never() : pool_.range(static_cast<uint8_t>(low), static_cast<uint8_t>(high));
  }
  ExprId point(std::string_view fraction) { return pool_.sequence({pool_.literal("."), pool_.literal(fraction)}); }
  ExprId any_fraction() {
    if (kind_ == NumberKind::integer) return pool_.empty();
    return pool_.optional(pool_.sequence({pool_.literal("."), digits(1, kUnlimited)}));
  }
  ExprId equal(const Decimal& b) {
    const ExprId zeros = pool_.repeat(pool_.literal("0"), 0, kUnlimited);
    if (!b.fraction.empty())
      return pool_.sequence({pool_.sequence({pool_.literal(b.whole), point(b.fraction)}), zeros});
    return pool_.sequence({pool_.literal(b.whole), pool_.optional(pool_.sequence({pool_.literal(".0"), zeros}))});
  }

  ExprId whole_above(const std::string& b) {
    const auto n = static_cast<uint32_t>(b.size());
    std::vector<ExprId> ways = {long_whole(n, kUnlimited)};
    for (uint32_t i = 0; i < n; ++i) {
      ways.push_back(pool_.sequence({pool_.literal(b.substr(0, i)), digit_range(static_cast<char>(b[i] + 1), '9'),
                                     digits(n - 1 - i, n - 1 - i)}));
    }
    return pool_.choice(ways);
  }
  ExprId whole_below(const std::string& b) {
    const auto n = static_cast<uint32_t>(b.size());
    std::vector<ExprId> ways;
    if (n > 1) ways = {pool_.literal("0"), long_whole(0, n - 2)};
    for (uint32_t i = 0; i < n; ++i) {
      const char least = i == 0 && n > 1 ? '1' : '0';
      ways.push_back(pool_.sequence({pool_.literal(b.substr(0, i)), digit_range(least, static_cast<char>(b[i] - 1)),
                                     digits(n - 1 - i, n - 1 - i)}));
    }
    return pool_.choice(ways);
  }
  // With the point: greater than 0.b
  ExprId fraction_above(const std::string& b) {
    std::vector<ExprId> ways;
    for (size_t i = 0; i < b.size(); ++i) {
      ways.push_back(pool_.sequence(
          {point(b.substr(0, i)), digit_range(static_cast<char>(b[i] + 1), '9'), digits(0, kUnlimited)}));
    }
    ways.push_back(pool_.sequence(
        {point(b), pool_.repeat(pool_.literal("0"), 0, kUnlimited), pool_.range('1', '9'), digits(0, kUnlimited)}));
    return pool_.choice(ways);
  }
  // With the point, or nothing at all: less than 0.b
  ExprId fraction_below(const std::string& b) {
    if (b.empty()) return pool_.never();
    std::vector<ExprId> ways = {pool_.empty()};
    for (size_t i = 0; i < b.size(); ++i) {
      if (i > 0) ways.push_back(point(b.substr(0, i)));
      ways.push_back(pool_.sequence(
          {point(b.substr(0, i)), digit_range('0', static_cast<char>(b[i] - 1)), digits(0, kUnlimited)}));
    }
    return pool_.choice(ways);
  }

  ExprPool& pool_;
  NumberKind kind_;
};

// Exponents have two digits at most: such numbers are far from where a double ends.
constexpr int kMaxExponent = 99;

// The largest e with 10^e <= magnitude, which is not 0.
int power_of_ten(const Decimal& magnitude) {
  if (magnitude.whole != "0") return static_cast<int>(magnitude.whole.size()) - 1;
  return -static_cast<int>(magnitude.fraction.find_first_not_of('0')) - 1;
}

bool is_power_of_ten(const Decimal& magnitude) {
  const std::string digits = magnitude.whole + magnitude.fraction;
  return std::ranges::count(digits, '0') + 1 == std::ssize(digits) && digits.find('1') != std::string::npos;
}

// From `least` to `most`, 0 to 99; those of one digit with a 0 before it, too.
ExprId small_numbers(ExprPool& pool, int least, int most) {
  std::vector<ExprId> ways;
  const auto digit = [](int d) { return static_cast<uint8_t>('0' + d); };
  for (int ten = 0; ten <= 9; ++ten) {
    const int first = std::max(least - 10 * ten, 0), last = std::min(most - 10 * ten, 9);
    if (first > last) continue;
    const ExprId tens = pool.range(digit(ten), digit(ten));
    ways.push_back(pool.sequence({ten == 0 ? pool.optional(tens) : tens, pool.range(digit(first), digit(last))}));
  }
  return pool.choice(ways);
}

// Numbers without sign between two others, neither of which is 0.
ExprId scientific_magnitudes(ExprPool& pool, const std::optional<DecimalBound>& least,
                             const std::optional<DecimalBound>& most) {
  int first = -kMaxExponent, last = kMaxExponent;
  if (least) {
    const bool begins = least->inclusive && is_power_of_ten(least->at);
    first = std::max(first, power_of_ten(least->at) + (begins ? 0 : 1));
  }
  if (most) last = std::min(last, power_of_ten(most->at) - 1);
  std::vector<ExprId> ways;
  if (last >= 0 && last >= first) {
    ways.push_back(pool.sequence({pool.optional(pool.literal("+")), small_numbers(pool, std::max(first, 0), last)}));
  }
  if (first < 0 && last >= first) {
    ways.push_back(pool.sequence({pool.literal("-"), small_numbers(pool, std::max(-last, 1), -first)}));
  }
  const ExprId digits = pool.repeat(pool.range('0', '9'), 1, kUnlimited);
  return pool.sequence({pool.range('1', '9'), pool.optional(pool.sequence({pool.literal("."), digits})),
                        pool.choice({pool.literal("e"), pool.literal("E")}), pool.choice(ways)});
}

}  // namespace

ExprId scientific_within(ExprPool& pool, const std::optional<DecimalBound>& least,
                         const std::optional<DecimalBound>& most) {
  const auto is_negative = [](const DecimalBound& bound) { return bound.at.negative && !bound.at.is_zero(); };
  const auto is_positive = [](const DecimalBound& bound) { return !bound.at.negative && !bound.at.is_zero(); };
  std::vector<ExprId> ways;
  if (!most || is_positive(*most)) {
    ways.push_back(scientific_magnitudes(pool, least && is_positive(*least) ? least : std::nullopt, most));
  }
  if (!least || is_negative(*least)) {
    const ExprId negative = scientific_magnitudes(pool, most && is_negative(*most) ? most : std::nullopt, least);
    ways.push_back(pool.sequence({pool.literal("-"), negative}));
  }
  return pool.choice(ways);
}

ExprId all_decimals(ExprPool& pool, NumberKind kind) {
  return pool.sequence({pool.optional(pool.literal("-")), Magnitudes(pool, kind).all()});
}

ExprId decimals_above(ExprPool& pool, NumberKind kind, const DecimalBound& bound) {
  const auto& [at, inclusive] = bound;
  Magnitudes magnitudes(pool, kind);
  if (!at.negative || at.is_zero()) return magnitudes.above(at, inclusive);
  return pool.choice({magnitudes.all(), pool.sequence({pool.literal("-"), magnitudes.below(at, inclusive)})});
}

ExprId decimals_below(ExprPool& pool, NumberKind kind, const DecimalBound& bound) {
  const auto& [at, inclusive] = bound;
  Magnitudes magnitudes(pool, kind);
  if (at.negative && !at.is_zero()) return pool.sequence({pool.literal("-"), magnitudes.above(at, inclusive)});
  // Less than nothing: -0 is not.
  const ExprId negative = at.is_zero() && !inclusive ? magnitudes.above({}, false) : magnitudes.all();
  return pool.choice({magnitudes.below(at, inclusive), pool.sequence({pool.literal("-"), negative})});
}

Machine multiples_machine(const Decimal& of, const Limits& limits) {
  const std::string places_of = of.fraction.empty() ? "0" : of.fraction;  // 5 has the multiple 5.0, too
  const std::string digits = of.whole + places_of;
  const uint64_t places = places_of.size();
  const auto n = static_cast<uint64_t>(digits.size() < 18 ? parse_int(digits).value_or(0) : 0);
  if (n == 0 || n * (places + 2) > limits.machine_states / 8) {
    fail_usage("it has too many digits");
  }
  // States: begin, after the sign, a whole zero; then remainders of whole numbers, and remainders after 1 .. places
  // digits of a fraction (place 0 is the point itself), and zeros that follow.
  constexpr uint32_t kBegin = 0, kSigned = 1, kFirst = 2;
  const auto whole = [&](uint64_t r) { return static_cast<uint32_t>(kFirst + 1 + r); };
  const auto fraction = [&](uint64_t place, uint64_t r) {
    return static_cast<uint32_t>(kFirst + 1 + n + place * n + r);
  };
  Machine machine;
  const auto fits = [&](uint64_t r, uint64_t place) {
    for (; place < places; ++place) r = r * 10 % n;
    return r % n == 0;
  };
  const auto add_first_digits = [&] {
    machine.add_edge('0', '0', kFirst);
    for (uint64_t d = 1; d <= 9; ++d) {
      const auto digit = static_cast<uint8_t>('0' + d);
      machine.add_edge(digit, digit, whole(d % n));
    }
  };
  const auto add_point = [&](uint64_t r) { machine.add_edge('.', '.', fraction(0, r)); };
  INFERNO_CHECK(kBegin == machine.states());
  machine.add_state(false);
  machine.add_edge('-', '-', kSigned);
  add_first_digits();
  machine.add_state(false);
  add_first_digits();
  machine.add_state(true);
  add_point(0);
  for (uint64_t r = 0; r < n; ++r) {
    machine.add_state(fits(r, 0));
    add_point(r);
    for (uint64_t d = 0; d <= 9; ++d) {
      const auto digit = static_cast<uint8_t>('0' + d);
      machine.add_edge(digit, digit, whole((r * 10 + d) % n));
    }
  }
  for (uint64_t place = 0; place <= places; ++place) {
    for (uint64_t r = 0; r < n; ++r) {
      machine.add_state(place > 0 && fits(r, place));
      if (place == places) {
        // Further digits change nothing only when they are zeros.
        machine.add_edge('0', '0', fraction(place, r));
        continue;
      }
      for (uint64_t d = 0; d <= 9; ++d) {
        const auto digit = static_cast<uint8_t>('0' + d);
        machine.add_edge(digit, digit, fraction(place + 1, (r * 10 + d) % n));
      }
    }
  }
  return machine;
}

}  // namespace inferno::grammar
