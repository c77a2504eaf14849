// Filters that make numbers.
#include <fmt/core.h>

#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"
#include "template/text_ops.h"

namespace inferno::jinja {
namespace {

// What Python's int(text, base) reads.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) throw Failure("int needs a base from 2 to 36");
  std::string digits(trim(text));
  bool negative = false;
  if (digits.starts_with('-') || digits.starts_with('+')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  const auto prefix_base = [&]() -> int64_t {
    if (digits.size() < 2 || digits[0] != '0') return 0;
    const char mark = static_cast<char>(digits[1] | 0x20);
    return mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  }();
  if (prefix_base != 0 && (base == 0 || base == prefix_base)) {
    digits.erase(0, 2);
    base = prefix_base;
  } else if (base == 0) {
    base = 10;
  }
  int64_t value = 0;
  bool after_digit = prefix_base != 0;
  if (digits.empty() || digits.back() == '_') return std::nullopt;
  for (const char c : digits) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int digit = c >= '0' && c <= '9'                     ? c - '0'
                      : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                               : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value)) {
      throw Failure("an integer is too large");
    }
    after_digit = true;
  }
  return negative ? -value : value;
}

// What Python's float(text) reads.
std::optional<double> parse_float(std::string_view text) {
  std::string digits(trim(text));
  const bool plain = digits.find_first_of("xXpP(") == std::string::npos && !digits.empty();
  std::erase(digits, '_');
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (!plain || end != digits.c_str() + digits.size()) return std::nullopt;
  return value;
}

int64_t truncate(double value) {
  if (std::isnan(value)) throw Failure("a number is no integer");
  if (!(std::fabs(value) < 9.2e18)) throw Failure("an integer is too large");
  return static_cast<int64_t>(value);
}

Value int_filter(Evaluator&, const Value& self, const Parameters& parameters) {
  Value otherwise = parameters.has(0) ? parameters.at(0) : Value::integer(0);
  if (is_undefined(self)) throw Failure(self.undefined_message());
  if (self.is_integral()) return Value::integer(self.as_integer(), self.is_user());
  if (self.is(Kind::floating)) {
    return std::isfinite(self.as_double()) ? Value::integer(truncate(self.as_double()), self.is_user()) : otherwise;
  }
  if (!self.is(Kind::string)) return otherwise;
  if (const auto value = parse_integer(self.as_view(), parameters.integer(1, 10))) return Value::integer(*value, true);
  const std::optional<double> value = parse_float(self.as_view());
  if (!value || !std::isfinite(*value)) return otherwise;
  return Value::integer(truncate(*value), true);
}

Value float_filter(Evaluator&, const Value& self, const Parameters& parameters) {
  if (is_undefined(self)) throw Failure(self.undefined_message());
  if (self.is_number()) return Value::floating(self.as_double(), self.is_user());
  if (self.is(Kind::string)) {
    if (const std::optional<double> value = parse_float(self.as_view())) return Value::floating(*value, true);
  }
  return parameters.has(0) ? parameters.at(0) : Value::floating(0);
}

Value abs_filter(Evaluator&, const Value& self, const Parameters&) {
  if (is_undefined(self)) throw Failure(self.undefined_message());
  if (!self.is_number()) throw Failure(fmt::format("abs needs a number, not a {}", self.type_name()));
  if (self.is(Kind::floating)) return Value::floating(std::fabs(self.as_double()), self.is_user());
  return self.as_integer() < 0 ? negate(self) : plus(self);
}

// To the nearest, halves to the even one, as the exact value of the number has it.
double round_exactly(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  if (precision > 300) return value;
  if (precision >= 0) {
    const std::string text = fmt::format("{:.{}f}", value, precision);
    return std::strtod(text.c_str(), nullptr);
  }
  if (precision < -308) return 0 * value;
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Value round_filter(Evaluator&, const Value& self, const Parameters& parameters) {
  if (is_undefined(self)) throw Failure(self.undefined_message());
  if (!self.is_number()) throw Failure(fmt::format("round needs a number, not a {}", self.type_name()));
  const int64_t precision = parameters.integer(0, 0);
  const std::string_view method = parameters.has(1) ? parameters.string(1)->as_view() : "common";
  if (method == "common") {
    if (self.is(Kind::floating)) return Value::floating(round_exactly(self.as_double(), precision), self.is_user());
    if (precision >= 0) return Value::integer(self.as_integer(), self.is_user());
    return Value::integer(truncate(round_exactly(self.as_double(), precision)), self.is_user());
  }
  if (method != "ceil" && method != "floor") throw Failure("round knows the methods common, ceil and floor");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.as_double() * unit;
  if (!std::isfinite(scaled) || unit == 0) throw Failure("a number cannot be rounded");
  return Value::floating((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit, self.is_user());
}

constexpr FilterEntry kNumberFilters[] = {
    {{"int", "default? base?", int_filter}},
    {{"float", "default?", float_filter}},
    {{"abs", "", abs_filter}},
    {{"round", "precision? method?", round_filter}},
};

}  // namespace

std::span<const FilterEntry> number_filters() {
  return kNumberFilters;
}

}  // namespace inferno::jinja
