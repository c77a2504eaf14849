// What can follow `is`.
#include <cmath>
#include <span>
#include <unordered_map>

#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

template <bool (*Is)(const Value&)>
Value when(Evaluator&, const Value& self, const Parameters&) {
  return Value::boolean(Is(self));
}

template <Kind Which>
Value when_kind(Evaluator&, const Value& self, const Parameters&) {
  return Value::boolean(self.is(Which));
}

template <Operator Which>
Value when_compared(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  return Value::boolean(compare(evaluator.run(), Which, self, parameters.at(0)));
}

bool is_defined(const Value& value) {
  return !is_undefined(value);
}
bool is_true(const Value& value) {
  return value.is(Kind::boolean) && value.as_boolean();
}
bool is_false(const Value& value) {
  return value.is(Kind::boolean) && !value.as_boolean();
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_escaped(const Value& value) {
  return value.is(Kind::string) && value.is_markup();
}
// Has a length, and elements that can be asked for.
bool is_sequence(const Value& value) {
  return value.is(Kind::string) || value.is(Kind::dict) || is_undefined(value) ||
         (value.is(Kind::sequence) && value.as_sequence().is_indexed());
}
bool is_callable(const Value& value) {
  if (is_undefined(value)) return true;
  if (!value.is(Kind::object)) return false;
  const Object::Type type = value.as_object().type();
  return type != Object::Type::name_space && type != Object::Type::cycler;
}

Value remainder_is(Evaluator& evaluator, const Value& self, const Value& divisor, int64_t rest) {
  const Value found = arithmetic(evaluator.run(), Operator::modulo, self, divisor);
  return Value::boolean(equal(found, Value::integer(rest)));
}

Value is_odd(Evaluator& evaluator, const Value& self, const Parameters&) {
  return remainder_is(evaluator, self, Value::integer(2), 1);
}

Value is_even(Evaluator& evaluator, const Value& self, const Parameters&) {
  return remainder_is(evaluator, self, Value::integer(2), 0);
}

Value is_divisible(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  return remainder_is(evaluator, self, parameters.at(0), 0);
}

Value is_same(Evaluator&, const Value& self, const Parameters& parameters) {
  const Value& other = parameters.at(0);
  if (self.kind() != other.kind()) return Value::boolean(false);
  const bool shared = self.is(Kind::sequence) || self.is(Kind::dict);
  return Value::boolean(shared ? self.identity() == other.identity() : equal(self, other));
}

template <bool Upper>
Value has_case(Evaluator& evaluator, const Value& self, const Parameters&) {
  const Value text = as_string(evaluator.run(), self);
  const BuiltinEntry* method = find_method(text, Upper ? "isupper" : "islower");
  CallArguments none;
  return method->function(evaluator, text, Parameters(method->name, "", none));
}

Value names_filter(Evaluator&, const Value& self, const Parameters&) {
  return Value::boolean(self.is(Kind::string) && find_filter(self.as_view()) != nullptr);
}

Value names_test(Evaluator&, const Value& self, const Parameters&) {
  return Value::boolean(self.is(Kind::string) && find_test(self.as_view()) != nullptr);
}

constexpr TestEntry kTests[] = {
    {{"defined", "", when<is_defined>}},
    {{"undefined", "", when_kind<Kind::undefined>}},
    {{"none", "", when_kind<Kind::none>}},
    {{"boolean", "", when_kind<Kind::boolean>}},
    {{"true", "", when<is_true>}},
    {{"false", "", when<is_false>}},
    {{"integer", "", when_kind<Kind::integer>}},
    {{"float", "", when_kind<Kind::floating>}},
    {{"number", "", when<is_number>}},
    {{"string", "", when_kind<Kind::string>}},
    {{"mapping", "", when_kind<Kind::dict>}},
    {{"sequence", "", when<is_sequence>}},
    {{"iterable", "", when<is_iterable>}},
    {{"callable", "", when<is_callable>}},
    {{"escaped", "", when<is_escaped>}},
    {{"odd", "", is_odd}},
    {{"even", "", is_even}},
    {{"divisibleby", "num", is_divisible}},
    {{"sameas", "other", is_same}},
    {{"lower", "", has_case<false>}},
    {{"upper", "", has_case<true>}},
    {{"filter", "", names_filter}},
    {{"test", "", names_test}},
    {{"in", "seq", when_compared<Operator::in>}},
    {{"eq", "-b", when_compared<Operator::equal>}},
    {{"equalto", "-b", when_compared<Operator::equal>}},
    {{"==", "-b", when_compared<Operator::equal>}},
    {{"ne", "-b", when_compared<Operator::not_equal>}},
    {{"!=", "-b", when_compared<Operator::not_equal>}},
    {{"gt", "-b", when_compared<Operator::greater>}},
    {{"greaterthan", "-b", when_compared<Operator::greater>}},
    {{">", "-b", when_compared<Operator::greater>}},
    {{"ge", "-b", when_compared<Operator::greater_equal>}},
    {{">=", "-b", when_compared<Operator::greater_equal>}},
    {{"lt", "-b", when_compared<Operator::less>}},
    {{"lessthan", "-b", when_compared<Operator::less>}},
    {{"<", "-b", when_compared<Operator::less>}},
    {{"le", "-b", when_compared<Operator::less_equal>}},
    {{"<=", "-b", when_compared<Operator::less_equal>}},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, const TestEntry*> kTable = [] {
    std::unordered_map<std::string_view, const TestEntry*> table;
    for (const TestEntry& entry : kTests) table.emplace(entry.name, &entry);
    return table;
  }();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace inferno::jinja
