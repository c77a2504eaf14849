// Filters over lists and dicts.
#include <fmt/core.h>

#include <algorithm>

#include "template/attribute_path.h"
#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"
#include "template/text_ops.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

Value length_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  evaluator.run().step(self.is(Kind::string) ? self.weight() : 1);
  return Value::integer(length_of(self));
}

Value list_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  return evaluator.run().list(iterate(evaluator.run(), self));
}

Value first_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  if (self.is(Kind::sequence)) {
    const Sequence& sequence = self.as_sequence();
    const bool reads = sequence.form == Sequence::Form::generator;
    const size_t at = reads ? sequence.next : 0;
    if (at >= sequence.items.size()) {
      if (!sequence.failure.empty()) throw Failure(sequence.failure);
      return Value::undefined_because("there is no first item");
    }
    if (reads) ++sequence.next;
    return sequence.items[at];
  }
  const std::vector<Value> items = iterate(evaluator.run(), self);
  return items.empty() ? Value::undefined_because("there is no first item") : items.front();
}

// reversed() of Python: what has an order and an end.
std::vector<Value> reversed(Evaluator& evaluator, const Value& self, std::string_view filter) {
  const bool is_generator = self.is(Kind::sequence) && self.as_sequence().form == Sequence::Form::generator;
  if (is_generator || is_undefined(self) || !is_iterable(self)) {
    throw Failure(fmt::format("{} needs a list, not a {}", filter, self.type_name()));
  }
  std::vector<Value> items = iterate(evaluator.run(), self);
  std::reverse(items.begin(), items.end());
  return items;
}

Value last_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  if (is_undefined(self)) return Value::undefined_because("there is no last item");
  const std::vector<Value> items = reversed(evaluator, self, "last");
  return items.empty() ? Value::undefined_because("there is no last item") : items.front();
}

Value reverse_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  Run& run = evaluator.run();
  if (self.is(Kind::string)) {
    const Value backward = Value::integer(-1);
    return slice(run, self, nullptr, nullptr, &backward);
  }
  std::vector<Value> items = iterate(run, self);
  std::reverse(items.begin(), items.end());
  return run.list(std::move(items), Sequence::Form::generator);
}

Value join_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  const Text separator = parameters.has(0) ? to_text(run, parameters.at(0)) : Text();
  std::optional<AttributePath> path;
  if (!parameters.is_none(1)) path.emplace(run, parameters.at(1));
  Text out;
  bool first = true;
  for (const Value& item : iterate(run, self)) {
    const Text text = to_text(run, path ? path->get(evaluator, item) : item);
    run.charge(text.size() + separator.size());
    if (!first) out.append(separator);
    first = false;
    out.append(text);
  }
  return run.text(std::move(out));
}

Value items_filter(Evaluator& evaluator, const Value& self, const Parameters&) {
  Run& run = evaluator.run();
  return run.generator([&](std::vector<Value>& items) {
    if (is_undefined(self)) return;
    if (!self.is(Kind::dict)) throw Failure(fmt::format("items needs a dict, not a {}", self.type_name()));
    for (const auto& [key, value] : self.as_dict().entries) {
      items.push_back(run.list({key, value}, Sequence::Form::tuple));
    }
  });
}

Value default_filter(Evaluator&, const Value& self, const Parameters& parameters) {
  const bool replaces = is_undefined(self) || (parameters.flag(1, false) && !truthy(self));
  if (!replaces) return self;
  return parameters.has(0) ? parameters.at(0) : Value::control("");
}

Value attr_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const Value& name = *parameters.string(0);
  if (self.is(Kind::dict) && find_method(self, name.as_view()) == nullptr) return Value::undefined(name, "dict");
  return evaluator.attribute(self, name);
}

Value sort_by(Evaluator& evaluator, std::vector<Value> values, const SortKey& key, bool reverse) {
  Run& run = evaluator.run();
  std::vector<Value> pairs;  // (key, value)
  for (const Value& value : values) pairs.push_back(run.list({key(value), value}, Sequence::Form::tuple));
  const auto key_of = [](const Value& pair) -> const Value& { return pair.as_sequence().items[0]; };
  // Reversed and still stable: equal elements keep their order.
  if (reverse) std::reverse(pairs.begin(), pairs.end());
  sort_values(pairs, [&](const Value& a, const Value& b) { return less(run, key_of(a), key_of(b)); });
  if (reverse) std::reverse(pairs.begin(), pairs.end());
  for (size_t i = 0; i < pairs.size(); ++i) values[i] = pairs[i].as_sequence().items[1];
  return run.list(std::move(values));
}

Value sort_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  const bool case_sensitive = parameters.flag(1, false);
  std::vector<AttributePath> paths;
  if (!parameters.is_none(2) && parameters.at(2).is(Kind::string)) {
    for (const Text& part : split(parameters.at(2).as_text(), ",", -1)) paths.emplace_back(run, run.text(part));
  } else if (!parameters.is_none(2)) {
    paths.emplace_back(run, parameters.at(2));
  }
  const auto key = [&](const Value& item) {
    if (paths.empty()) return ignore_case(run, item, case_sensitive);
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      keys.push_back(ignore_case(run, path.get(evaluator, item), case_sensitive));
    }
    return run.list(std::move(keys));
  };
  return sort_by(evaluator, iterate(run, self), key, parameters.strict_flag(0));
}

Value dictsort_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  if (is_undefined(self)) throw Failure(self.undefined_message());
  if (!self.is(Kind::dict)) throw Failure(fmt::format("dictsort needs a dict, not a {}", self.type_name()));
  const bool case_sensitive = parameters.flag(0, false);
  const std::string_view by = parameters.has(1) ? parameters.string(1)->as_view() : "key";
  if (by != "key" && by != "value") throw Failure("dictsort sorts by \"key\" or \"value\"");
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries) {
    items.push_back(run.list({key, value}, Sequence::Form::tuple));
  }
  const size_t position = by == "key" ? 0 : 1;
  const auto key = [&](const Value& item) {
    return ignore_case(run, item.as_sequence().items[position], case_sensitive);
  };
  return sort_by(evaluator, std::move(items), key, parameters.strict_flag(2));
}

Value groupby_filter(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  Run& run = evaluator.run();
  const AttributePath path(run, parameters.at(0));
  const Value* otherwise = parameters.is_none(1) ? nullptr : &parameters.at(1);
  const bool case_sensitive = parameters.flag(2, false);
  const auto key = [&](const Value& item) {
    return ignore_case(run, path.get(evaluator, item, otherwise), case_sensitive);
  };
  const Value sorted = sort_by(evaluator, iterate(run, self), key, false);
  std::vector<Value> groups;
  std::vector<Value> members;
  const auto flush = [&] {
    if (members.empty()) return;
    const Value name = path.get(evaluator, members.front(), otherwise);
    groups.push_back(run.list({name, run.list(std::move(members))}, Sequence::Form::group));
    members = {};
  };
  for (const Value& item : sorted.as_sequence().items) {
    if (!members.empty() && !equals(run, key(members.front()), key(item))) flush();
    members.push_back(item);
  }
  flush();
  return run.list(std::move(groups));
}

constexpr FilterEntry kSequenceFilters[] = {
    {{"length", "", length_filter}},
    {{"count", "", length_filter}},
    {{"list", "", list_filter}},
    {{"first", "", first_filter}},
    {{"last", "", last_filter}},
    {{"reverse", "", reverse_filter}},
    {{"join", "d? attribute?", join_filter}},
    {{"items", "", items_filter}},
    {{"default", "default_value? boolean?", default_filter}},
    {{"d", "default_value? boolean?", default_filter}},
    {{"attr", "name", attr_filter}},
    {{"sort", "reverse? case_sensitive? attribute?", sort_filter}},
    {{"dictsort", "case_sensitive? by? reverse?", dictsort_filter}},
    {{"groupby", "attribute default? case_sensitive?", groupby_filter}},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace inferno::jinja
