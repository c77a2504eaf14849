// Python's operators.
#pragma once

#include <functional>
#include <vector>

#include "template/run.h"
#include "template/syntax.h"
#include "template/value.h"

namespace inferno::jinja {

[[nodiscard]] Value arithmetic(Run& run, Operator op, const Value& a, const Value& b);
[[nodiscard]] Value negate(const Value& value);
[[nodiscard]] Value plus(const Value& value);
// == as it is paid for.
[[nodiscard]] bool equals(Run& run, const Value& a, const Value& b);
// <; values that have no order are a Failure.
[[nodiscard]] bool less(Run& run, const Value& a, const Value& b);
[[nodiscard]] bool compare(Run& run, Operator op, const Value& a, const Value& b);
[[nodiscard]] bool contains(Run& run, const Value& container, const Value& item);

// What iterating over it gives; a Failure for what cannot be. A generator is read to its end.
[[nodiscard]] std::vector<Value> iterate(Run& run, const Value& value);
[[nodiscard]] bool is_iterable(const Value& value);
// len(); a Failure for what has none.
[[nodiscard]] int64_t length_of(const Value& value);
// x[begin:end:step], each null or none when not given.
[[nodiscard]] Value slice(Run& run, const Value& value, const Value* begin, const Value* end, const Value* step);
// x[index] of strings and sequences; null for what is not there or cannot be indexed.
[[nodiscard]] const Value* element(const Sequence& sequence, const Value& index);

// a + b of strings; one that is marked as safe escapes the other.
[[nodiscard]] Value concat(Run& run, const Value& a, const Value& b);
// A string as it is, another value as str() gives it.
[[nodiscard]] Value as_string(Run& run, const Value& value);

// An integer, or a Failure that names what it is for.
[[nodiscard]] int64_t to_index(const Value& value, std::string_view what);
// Stable; `before` may throw and may be inconsistent.
void sort_values(std::vector<Value>& values, const std::function<bool(const Value&, const Value&)>& before);

}  // namespace inferno::jinja
