// Methods of dicts, lists and objects, and which methods there are at all.
#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"

namespace inferno::jinja {
namespace {

Value get_method(Evaluator&, const Value& self, const Parameters& parameters) {
  if (!is_hashable(parameters.at(0))) throw Failure("get() needs a key that a dict can have");
  const Value* found = self.as_dict().find(parameters.at(0));
  if (found != nullptr) return *found;
  return parameters.has(1) ? parameters.at(1) : Value();
}

Value items_method(Evaluator& evaluator, const Value& self, const Parameters&) {
  Run& run = evaluator.run();
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries) {
    items.push_back(run.list({key, value}, Sequence::Form::tuple));
  }
  return run.list(std::move(items), Sequence::Form::items);
}

Value keys_method(Evaluator& evaluator, const Value& self, const Parameters&) {
  return evaluator.run().list(iterate(evaluator.run(), self), Sequence::Form::keys);
}

Value values_method(Evaluator& evaluator, const Value& self, const Parameters&) {
  std::vector<Value> values;
  for (const auto& entry : self.as_dict().entries) values.push_back(entry.second);
  return evaluator.run().list(std::move(values), Sequence::Form::values);
}

Value copy_method(Evaluator&, const Value& self, const Parameters&) {
  return self;
}

Value list_index(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  const std::vector<Value>& items = self.as_sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(evaluator.run(), items[i], parameters.at(0))) return Value::integer(static_cast<int64_t>(i));
  }
  throw Failure("index() did not find the value");
}

Value list_count(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  int64_t count = 0;
  for (const Value& item : self.as_sequence().items) count += equals(evaluator.run(), item, parameters.at(0)) ? 1 : 0;
  return Value::integer(count);
}

Value cycler_next(Evaluator&, const Value& self, const Parameters&) {
  auto& cycler = static_cast<CyclerObject&>(self.as_object());
  const size_t at = std::exchange(cycler.position, (cycler.position + 1) % cycler.items.size());
  return cycler.items[at];
}

Value cycler_reset(Evaluator&, const Value& self, const Parameters&) {
  static_cast<CyclerObject&>(self.as_object()).position = 0;
  return {};
}

Value loop_cycle(Evaluator&, const Value& self, const Parameters& parameters) {
  const std::vector<Value>& items = parameters.given().positional;
  if (items.empty() || !parameters.given().named.empty()) throw Failure("cycle() needs items");
  const auto index = static_cast<size_t>(std::max<int64_t>(static_cast<LoopObject&>(self.as_object()).index0, 0));
  return items[index % items.size()];
}

Value loop_changed(Evaluator& evaluator, const Value& self, const Parameters& parameters) {
  auto& loop = static_cast<LoopObject&>(self.as_object());
  const std::vector<Value>& values = parameters.given().positional;
  const bool same =
      loop.has_changed && std::equal(values.begin(), values.end(), loop.last_changed.begin(), loop.last_changed.end(),
                                     [&](const Value& a, const Value& b) { return equals(evaluator.run(), a, b); });
  loop.last_changed = values;
  loop.has_changed = true;
  return Value::boolean(!same);
}

constexpr BuiltinEntry kDictMethods[] = {
    {"get", "-key -default?", get_method}, {"items", "", items_method}, {"keys", "", keys_method},
    {"values", "", values_method},         {"copy", "", copy_method},
};
constexpr BuiltinEntry kListMethods[] = {
    {"index", "-value", list_index}, {"count", "-value", list_count}, {"copy", "", copy_method}};
constexpr BuiltinEntry kCyclerMethods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};
constexpr BuiltinEntry kLoopMethods[] = {{"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}};

const BuiltinEntry* find_in(std::span<const BuiltinEntry> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const BuiltinEntry* find_string_method(std::string_view name) {
  static const std::unordered_map<std::string_view, const BuiltinEntry*> kTable = [] {
    std::unordered_map<std::string_view, const BuiltinEntry*> table;
    for (const auto part : {string_methods(), string_predicates(), split_methods()}) {
      for (const BuiltinEntry& entry : part) table.emplace(entry.name, &entry);
    }
    return table;
  }();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace

const BuiltinEntry* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::string:
      return find_string_method(name);
    case Kind::dict:
      return find_in(kDictMethods, name);
    case Kind::sequence: {
      const BuiltinEntry* entry = self.as_sequence().is_indexed() ? find_in(kListMethods, name) : nullptr;
      const bool is_list = self.as_sequence().form == Sequence::Form::list;
      return entry != nullptr && entry->name == "copy" && !is_list ? nullptr : entry;
    }
    case Kind::object:
      if (self.as_object().type() == Object::Type::cycler) return find_in(kCyclerMethods, name);
      return self.as_object().type() == Object::Type::loop ? find_in(kLoopMethods, name) : nullptr;
    default:
      return nullptr;
  }
}

bool is_forbidden_method(const Value& self, std::string_view name) {
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update", "fromkeys"};
  constexpr std::string_view kList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  const auto is_in = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (self.is(Kind::dict)) return is_in(kDict);
  return self.is(Kind::sequence) && self.as_sequence().form == Sequence::Form::list && is_in(kList);
}

}  // namespace inferno::jinja
