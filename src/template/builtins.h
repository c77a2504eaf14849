// The names a template finds without defining them: filters, tests, methods and functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "template/object.h"
#include "template/value.h"

namespace inferno::jinja {

// Arguments by the names of parameters. A signature is a list of names, "?" after those that may be left out, "-"
// before those that can be given by position only; "*" alone takes everything as it is given.
class Parameters {
 public:
  Parameters(std::string_view function, std::string_view signature, CallArguments& given);

  [[nodiscard]] bool has(size_t i) const { return values_[i] != nullptr; }
  [[nodiscard]] const Value& at(size_t i) const { return *values_[i]; }
  // Not given, or none.
  [[nodiscard]] bool is_none(size_t i) const { return !has(i) || at(i).is(Kind::none); }
  [[nodiscard]] bool flag(size_t i, bool otherwise) const;
  // A flag that has to be a number.
  [[nodiscard]] bool strict_flag(size_t i) const { return integer(i, 0) != 0; }
  [[nodiscard]] int64_t integer(size_t i, int64_t otherwise) const;
  // Has to be a string when it is given.
  [[nodiscard]] const Value* string(size_t i) const;
  [[nodiscard]] const CallArguments& given() const { return given_; }
  [[nodiscard]] std::string_view function() const { return function_; }

 private:
  std::string_view function_;
  CallArguments& given_;
  std::vector<const Value*> values_;  // by parameter; null: not given
};

using Builtin = Value (*)(Evaluator& evaluator, const Value& self, const Parameters& parameters);

struct BuiltinEntry {
  std::string_view name;
  std::string_view signature;
  Builtin function;
};
struct FilterEntry : BuiltinEntry {};
struct TestEntry : BuiltinEntry {};

// Null for unknown names.
[[nodiscard]] const FilterEntry* find_filter(std::string_view name);
[[nodiscard]] const TestEntry* find_test(std::string_view name);
[[nodiscard]] GlobalFunction find_global(std::string_view name);
// A method of a value of this kind that the sandbox allows.
[[nodiscard]] const BuiltinEntry* find_method(const Value& self, std::string_view name);
// Methods that would change a list or a dict: they exist, and may not be used.
[[nodiscard]] bool is_forbidden_method(const Value& self, std::string_view name);

// The parts of the tables above.
[[nodiscard]] std::span<const FilterEntry> text_filters();
[[nodiscard]] std::span<const FilterEntry> sequence_filters();
[[nodiscard]] std::span<const FilterEntry> selection_filters();
[[nodiscard]] std::span<const FilterEntry> number_filters();
[[nodiscard]] std::span<const BuiltinEntry> string_methods();
[[nodiscard]] std::span<const BuiltinEntry> string_predicates();
[[nodiscard]] std::span<const BuiltinEntry> split_methods();

}  // namespace inferno::jinja
