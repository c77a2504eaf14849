#include "template/builtins.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "template/operators.h"

namespace inferno::jinja {
namespace {

template <typename Entry>
using Table = std::unordered_map<std::string_view, const Entry*>;

template <typename Entry>
Table<Entry> make_table(std::initializer_list<std::span<const Entry>> parts) {
  Table<Entry> table;
  for (const std::span<const Entry> part : parts) {
    for (const Entry& entry : part) table.emplace(entry.name, &entry);
  }
  return table;
}

}  // namespace

Parameters::Parameters(std::string_view function, std::string_view signature, CallArguments& given)
    : function_(function), given_(given) {
  if (signature == "*") return;
  const auto fail = [&](std::string_view what) { throw Failure(fmt::format("{}() {}", function, what)); };
  size_t named = 0;
  for (size_t i = 0; !signature.empty(); ++i) {
    const size_t space = std::min(signature.find(' '), signature.size());
    std::string_view name = signature.substr(0, space);
    signature.remove_prefix(std::min(space + 1, signature.size()));
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    const bool by_name = !name.starts_with('-');
    if (!by_name) name.remove_prefix(1);
    const auto found = std::find_if(given.named.begin(), given.named.end(),
                                    [&](const auto& entry) { return by_name && entry.first == name; });
    const Value* value = i < given.positional.size() ? &given.positional[i] : nullptr;
    if (found != given.named.end()) {
      if (value != nullptr) fail(fmt::format("has the argument '{}' twice", name));
      value = &found->second;
      ++named;
    }
    if (value == nullptr && !optional) fail(fmt::format("needs the argument '{}'", name));
    values_.push_back(value);
  }
  if (given.positional.size() > values_.size()) fail(fmt::format("takes not more than {} arguments", values_.size()));
  if (named < given.named.size()) fail("has an argument with a name it does not know");
}

bool Parameters::flag(size_t i, bool otherwise) const {
  return has(i) ? truthy(at(i)) : otherwise;
}

int64_t Parameters::integer(size_t i, int64_t otherwise) const {
  return has(i) ? to_index(at(i), function_) : otherwise;
}

const Value* Parameters::string(size_t i) const {
  if (!has(i)) return nullptr;
  if (is_undefined(at(i))) throw Failure(at(i).undefined_message());
  if (!at(i).is(Kind::string))
    throw Failure(fmt::format("{}() needs a string, not a {}", function_, at(i).type_name()));
  return &at(i);
}

const FilterEntry* find_filter(std::string_view name) {
  static const Table<FilterEntry> kTable =
      make_table<FilterEntry>({text_filters(), sequence_filters(), selection_filters(), number_filters()});
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace inferno::jinja
