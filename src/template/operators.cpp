#include "template/operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "template/format.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

std::string_view symbol(Operator op) {
  constexpr std::string_view kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void fail_operands(Operator op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (is_undefined(*value)) throw Failure(value->undefined_message());
  }
  throw Failure(fmt::format("{} cannot be used between a {} and a {}", symbol(op), a.type_name(), b.type_name()));
}

[[noreturn]] void fail_overflow() {
  throw Failure("an integer is too large");
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw Failure("division by zero");
  if (a == INT64_MIN && b == -1) fail_overflow();
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t floor_modulo(int64_t a, int64_t b) {
  if (b == 0) throw Failure("division by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double floor_modulo(double a, double b) {
  if (b == 0) throw Failure("division by zero");
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double floor_divide(double a, double b) {
  const double rest = floor_modulo(a, b);
  const double quotient = (a - rest) / b;
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

Value integers(Operator op, int64_t a, int64_t b, bool user) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::floor_divide:
      result = floor_divide(a, b);
      break;
    case Operator::modulo:
      result = floor_modulo(a, b);
      break;
    default:  // power with a positive exponent
      result = integer_power(a, b);
  }
  if (overflow) fail_overflow();
  return Value::integer(result, user);
}

double doubles(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::divide:
      if (b == 0) throw Failure("division by zero");
      return a / b;
    case Operator::floor_divide:
      return floor_divide(a, b);
    case Operator::modulo:
      return floor_modulo(a, b);
    default:
      break;
  }
  if (a == 0 && b < 0) throw Failure("0 cannot be raised to a negative power");
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) throw Failure("a power is not a real number");
  if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) throw Failure("a number is too large");
  return result;
}

Value numbers(Operator op, const Value& a, const Value& b) {
  const bool user = a.is_user() || b.is_user();
  const bool whole = a.is_integral() && b.is_integral() && op != Operator::divide;
  if (whole && !(op == Operator::power && b.as_integer() < 0)) {
    return integers(op, a.as_integer(), b.as_integer(), user);
  }
  return Value::floating(doubles(op, a.as_double(), b.as_double()), user);
}

Value repeat(Run& run, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const size_t size =
      value.is(Kind::string) ? value.as_text().size() : value.as_sequence().items.size() * sizeof(Value);
  uint64_t total = 0;
  if (__builtin_mul_overflow(size, static_cast<uint64_t>(count), &total)) total = UINT64_MAX;
  run.charge(total);
  if (value.is(Kind::string)) {
    Text text;
    for (int64_t i = 0; i < count && size > 0; ++i) text.append(value.as_text());
    return run.text(std::move(text), value.is_markup());
  }
  std::vector<Value> items;
  const Sequence& sequence = value.as_sequence();
  for (int64_t i = 0; i < count && size > 0; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return run.list(std::move(items), sequence.form);
}

bool is_list_or_tuple(const Value& value) {
  return value.is(Kind::sequence) &&
         (value.as_sequence().form == Sequence::Form::list || value.as_sequence().is_tuple());
}

bool same_sequence_type(const Value& a, const Value& b) {
  return is_list_or_tuple(a) && is_list_or_tuple(b) && a.as_sequence().is_tuple() == b.as_sequence().is_tuple();
}

Value join_sequences(Run& run, const Sequence& a, const Sequence& b) {
  std::vector<Value> items;
  items.reserve(a.items.size() + b.items.size());
  items.insert(items.end(), a.items.begin(), a.items.end());
  items.insert(items.end(), b.items.begin(), b.items.end());
  return run.list(std::move(items), a.is_tuple() ? Sequence::Form::tuple : Sequence::Form::list);
}

// -1, 0 or 1, and 2 for numbers without an order.
int order(Run& run, const Value& a, const Value& b, Operator op) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; };
  if (a.is_integral() && b.is_integral()) return sign(a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return sign(a.as_double(), b.as_double());
  if (a.is(Kind::string) && b.is(Kind::string)) return sign(a.as_view().compare(b.as_view()), 0);
  if (!same_sequence_type(a, b)) fail_operands(op, a, b);
  const Run::Nested nested(run);
  const auto& x = a.as_sequence().items;
  const auto& y = b.as_sequence().items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!equal(x[i], y[i])) return order(run, x[i], y[i], op);
  }
  return sign(x.size(), y.size());
}

int paid_order(Run& run, const Value& a, const Value& b, Operator op) {
  run.step(std::min(a.weight(), b.weight()));
  return order(run, a, b, op);
}

}  // namespace

Value concat(Run& run, const Value& a, const Value& b) {
  const bool markup = a.is_markup() || b.is_markup();
  run.charge((a.as_text().size() + b.as_text().size()) * (markup ? 6 : 1));
  Text text = markup && !a.is_markup() ? escape_html(a.as_text()) : a.as_text();
  if (markup && !b.is_markup()) {
    text.append(escape_html(b.as_text()));
  } else {
    text.append(b.as_text());
  }
  return Value::string(std::move(text), markup);
}

Value as_string(Run& run, const Value& value) {
  return value.is(Kind::string) ? value : run.text(to_text(run, value));
}

Value arithmetic(Run& run, Operator op, const Value& a, const Value& b) {
  if (op == Operator::modulo && a.is(Kind::string)) return format_percent(run, a, b);
  if (a.is_number() && b.is_number()) return numbers(op, a, b);
  if (op == Operator::add && a.is(Kind::string) && b.is(Kind::string)) return concat(run, a, b);
  if (op == Operator::add && same_sequence_type(a, b)) return join_sequences(run, a.as_sequence(), b.as_sequence());
  if (op == Operator::multiply) {
    if ((a.is(Kind::string) || is_list_or_tuple(a)) && b.is_integral()) return repeat(run, a, b.as_integer());
    if ((b.is(Kind::string) || is_list_or_tuple(b)) && a.is_integral()) return repeat(run, b, a.as_integer());
  }
  fail_operands(op, a, b);
}

Value negate(const Value& value) {
  if (value.is(Kind::floating)) return Value::floating(-value.as_double(), value.is_user());
  if (!value.is_integral()) fail_operands(Operator::subtract, value, value);
  if (value.as_integer() == INT64_MIN) fail_overflow();
  return Value::integer(-value.as_integer(), value.is_user());
}

Value plus(const Value& value) {
  if (!value.is_number()) fail_operands(Operator::add, value, value);
  return value.is(Kind::boolean) ? Value::integer(value.as_integer(), value.is_user()) : value;
}

bool equals(Run& run, const Value& a, const Value& b) {
  run.step(std::min(a.weight(), b.weight()));
  return equal(a, b);
}

bool less(Run& run, const Value& a, const Value& b) {
  return paid_order(run, a, b, Operator::less) == -1;
}

bool compare(Run& run, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::equal:
      return equals(run, a, b);
    case Operator::not_equal:
      return !equals(run, a, b);
    case Operator::in:
      return contains(run, b, a);
    case Operator::not_in:
      return !contains(run, b, a);
    default:
      break;
  }
  const int result = paid_order(run, a, b, op);
  switch (op) {
    case Operator::less:
      return result == -1;
    case Operator::less_equal:
      return result == -1 || result == 0;
    case Operator::greater:
      return result == 1;
    default:
      return result == 1 || result == 0;
  }
}

}  // namespace inferno::jinja
