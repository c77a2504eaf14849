// Filters that pick, convert, compare and group items.
#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "template/attribute_path.h"
#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"
#include "template/text_ops.h"
#include "template/unicode.h"

namespace inferno::jinja {

AttributePath::AttributePath(Run& run, const Value& path) {
  if (!path.is(Kind::string)) {
    parts_ = {path};
    return;
  }
  for (const Text& part : split(path.as_text(), ".", -1)) {
    const std::string_view view = part.view();
    const bool digits =
        !view.empty() && std::all_of(view.begin(), view.end(), [](char c) { return c >= '0' && c <= '9'; });
    const std::optional<int64_t> index = digits ? parse_int(view) : std::nullopt;
    parts_.push_back(index ? Value::integer(*index) : run.text(part));
  }
}

Value AttributePath::get(Evaluator& evaluator, const Value& item, const Value* otherwise) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = evaluator.item(value, part);
    if (otherwise != nullptr && is_undefined(value)) value = *otherwise;
  }
  return value;
}

Value ignore_case(Run& run, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is(Kind::string)) return value;
  return run.text(to_lower(value.as_text()), value.is_markup());
}

namespace {

Value map_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  return run.generator([&](std::vector<Value>& items) {
    if (!truthy(self)) return;
    CallArguments given = parameters.given();
    if (given.positional.empty() && !given.named.empty()) {
      const Parameters named("map", "attribute default?", given);
      const AttributePath path(run, named.at(0));
      const Value* otherwise = named.is_none(1) ? nullptr : &named.at(1);
      for (const Value& item : iterate(run, self)) items.push_back(path.get(evaluator, item, otherwise));
      return;
    }
    const Value name = given.positional.empty() ? Value() : given.positional.front();
    if (!name.is(Kind::string)) throw Failure("map needs the name of a filter");
    given.positional.erase(given.positional.begin());
    const FilterEntry* filter = find_filter(name.as_view());
    for (const Value& item : iterate(run, self)) {
      CallArguments arguments = given;
      items.push_back(evaluator.apply_filter(filter, name, item, arguments));
    }
  });
}

template <bool Wanted, bool ByAttribute>
Value select_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  return run.generator([&](std::vector<Value>& items) {
    if (!truthy(self)) return;
    CallArguments given = parameters.given();
    std::optional<AttributePath> path;
    if (ByAttribute) {
      if (given.positional.empty()) throw Failure("the name of an attribute is missing");
      path.emplace(run, given.positional.front());
      given.positional.erase(given.positional.begin());
    }
    std::optional<Value> name;
    if (!given.positional.empty()) {
      name = given.positional.front();
      if (!name->is(Kind::string)) throw Failure("the name of a test must be a string");
      given.positional.erase(given.positional.begin());
    }
    const TestEntry* test = name ? find_test(name->as_view()) : nullptr;
    for (const Value& item : iterate(run, self)) {
      const Value value = path ? path->get(evaluator, item) : item;
      CallArguments arguments = given;
      const bool passes = name ? evaluator.apply_test(test, *name, value, arguments) : truthy(value);
      if (passes == Wanted) items.push_back(item);
    }
  });
}

Value unique_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  return run.generator([&](std::vector<Value>& items) {
    std::optional<AttributePath> path;
    if (!parameters.is_none(1)) path.emplace(run, parameters.at(1));
    Dict seen;
    for (const Value& item : iterate(run, self)) {
      const Value key = ignore_case(run, path ? path->get(evaluator, item) : item, parameters.flag(0, false));
      const size_t before = seen.entries.size();
      run.step(1 + (key.is(Kind::string) ? 0 : before));
      seen.set(key, Value());
      if (seen.entries.size() > before) items.push_back(item);
    }
  });
}

template <bool Largest>
Value extreme_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  std::optional<AttributePath> path;
  if (!parameters.is_none(1)) path.emplace(run, parameters.at(1));
  const auto key_of = [&](const Value& item) {
    return ignore_case(run, path ? path->get(evaluator, item) : item, parameters.flag(0, false));
  };
  const std::vector<Value> items = iterate(run, self);
  if (items.empty()) return Value::undefined_because("there is no item to choose from");
  const Value* best = &items.front();
  Value best_key = key_of(*best);
  for (size_t i = 1; i < items.size(); ++i) {
    const Value key = key_of(items[i]);
    if (Largest ? compare(run, Operator::greater, key, best_key) : less(run, key, best_key)) {
      best = &items[i];
      best_key = key;
    }
  }
  return *best;
}

Value sum_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  std::optional<AttributePath> path;
  if (!parameters.is_none(0)) path.emplace(run, parameters.at(0));
  Value total = parameters.has(1) ? parameters.at(1) : Value::integer(0);
  if (total.is(Kind::string)) throw Failure("sum cannot add strings");
  for (const Value& item : iterate(run, self)) {
    total = arithmetic(run, Operator::add, total, path ? path->get(evaluator, item) : item);
  }
  return total;
}

Value batch_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  return run.generator([&](std::vector<Value>& batches) {
    const Value& size = parameters.at(0);
    std::vector<Value> batch;
    for (const Value& item : iterate(run, self)) {
      if (equal(size, Value::integer(static_cast<int64_t>(batch.size())))) {
        batches.push_back(run.list(std::exchange(batch, {})));
      }
      batch.push_back(item);
    }
    if (batch.empty()) return;
    if (!parameters.is_none(1)) {
      const int64_t missing = parameters.integer(0, 0) - static_cast<int64_t>(batch.size());
      if (missing > 0) {
        run.charge(static_cast<uint64_t>(missing) * sizeof(Value));
        batch.insert(batch.end(), static_cast<size_t>(missing), parameters.at(1));
      }
    }
    batches.push_back(run.list(std::move(batch)));
  });
}

Value slice_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  return run.generator([&](std::vector<Value>& slices) {
    const std::vector<Value> items = iterate(run, self);
    const auto size = static_cast<int64_t>(items.size());
    const int64_t count = parameters.integer(0, 1);
    if (count == 0) throw Failure("slice needs a number of slices");
    auto at = items.begin();
    for (int64_t i = 0; i < count; ++i) {
      const bool extra = i < size % count;
      const auto end = at + size / count + (extra ? 1 : 0);
      std::vector<Value> part(at, end);
      at = end;
      if (!parameters.is_none(1) && !extra) part.push_back(parameters.at(1));
      slices.push_back(run.list(std::move(part)));
    }
  });
}

constexpr FilterEntry kSelectionFilters[] = {
    {{"map", "*", map_filter}},
    {{"select", "*", select_filter<true, false>}},
    {{"reject", "*", select_filter<false, false>}},
    {{"selectattr", "*", select_filter<true, true>}},
    {{"rejectattr", "*", select_filter<false, true>}},
    {{"unique", "case_sensitive? attribute?", unique_filter}},
    {{"min", "case_sensitive? attribute?", extreme_filter<false>}},
    {{"max", "case_sensitive? attribute?", extreme_filter<true>}},
    {{"sum", "attribute? start?", sum_filter}},
    {{"batch", "linecount fill_with?", batch_filter}},
    {{"slice", "slices fill_with?", slice_filter}},
};

}  // namespace

std::span<const FilterEntry> selection_filters() {
  return kSelectionFilters;
}

}  // namespace inferno::jinja
