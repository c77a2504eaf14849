#include "template/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace inferno::jinja {
namespace {

constexpr size_t kIndexedEntries = 12;  // dicts with more are looked up by hash

// What a container knows of its elements.
template <typename Container>
void count(Container& container, const Value& element) {
  container.depth = std::max(container.depth, element.depth() + 1);
  container.weight += element.weight();
  if (container.depth > kMaxDepth) throw LimitFailure(fmt::format("values are nested more than {} deep", kMaxDepth));
  if (container.weight > kMaxWeight) throw LimitFailure(fmt::format("a value has more than {} elements", kMaxWeight));
}

// Views of dicts are equal as sets.
bool equal_views(const Sequence& a, const Sequence& b) {
  return a.items.size() == b.items.size() && std::all_of(a.items.begin(), a.items.end(), [&](const Value& item) {
           return std::any_of(b.items.begin(), b.items.end(), [&](const Value& other) { return equal(item, other); });
         });
}

bool equal_sequences(const Sequence& a, const Sequence& b) {
  const bool is_view = a.form == Sequence::Form::keys || a.form == Sequence::Form::items;
  if (is_view && a.form == b.form && a.items.size() <= kIndexedEntries) return equal_views(a, b);
  if (!a.is_indexed() || !b.is_indexed()) return &a == &b;
  const bool comparable = a.form == b.form || (a.is_tuple() && b.is_tuple());
  return comparable && a.items.size() == b.items.size() &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), [](auto& x, auto& y) { return equal(x, y); });
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
  return a.as_double() == b.as_double();
}

// Equal for keys that are equal: 1, 1.0 and true are one key.
std::string index_key(const Value& key) {
  switch (key.kind()) {
    case Kind::string:
      return fmt::format("s{}", key.as_view());
    case Kind::boolean:
    case Kind::integer:
      return fmt::format("n{}", key.as_integer());
    case Kind::floating: {
      const double value = key.as_double();
      const bool whole = std::fabs(value) < 9.2e18 && value == std::trunc(value);
      return whole ? fmt::format("n{}", static_cast<int64_t>(value)) : fmt::format("f{}", value);
    }
    case Kind::sequence: {
      if (!key.as_sequence().is_tuple()) return fmt::format("o{}", key.identity());
      std::string out = "t";
      for (const Value& item : key.as_sequence().items) {
        const std::string part = index_key(item);
        out += fmt::format("{}:{}", part.size(), part);
      }
      return out;
    }
    case Kind::object:
      return fmt::format("o{}", static_cast<const void*>(&key.as_object()));
    default:
      return key.is(Kind::none) ? "none" : "undefined";
  }
}

}  // namespace

Value Value::boolean(bool value, bool user) {
  Value made = integer(value ? 1 : 0, user);
  made.kind_ = Kind::boolean;
  return made;
}

Value Value::integer(int64_t value, bool user) {
  Value made;
  made.kind_ = Kind::integer;
  made.user_ = user;
  made.scalar_.integer = value;
  return made;
}

Value Value::floating(double value, bool user) {
  Value made;
  made.kind_ = Kind::floating;
  made.user_ = user;
  made.scalar_.floating = value;
  return made;
}

Value Value::string(Text text, bool markup) {
  Value made;
  made.kind_ = Kind::string;
  made.markup_ = markup;
  made.data_ = std::make_shared<const Text>(std::move(text));
  return made;
}

Value Value::sequence(Sequence sequence) {
  for (const Value& item : sequence.items) count(sequence, item);
  Value made;
  made.kind_ = Kind::sequence;
  made.data_ = std::make_shared<const Sequence>(std::move(sequence));
  return made;
}

Value Value::dict(Dict dict) {
  for (const auto& [key, value] : dict.entries) {
    count(dict, key);
    count(dict, value);
  }
  Value made;
  made.kind_ = Kind::dict;
  made.data_ = std::make_shared<const Dict>(std::move(dict));
  return made;
}

Value Value::object(Object* object) {
  Value made;
  made.kind_ = Kind::object;
  made.scalar_.object = object;
  return made;
}

Value Value::undefined(Value name, const char* owner) {
  Value made = std::move(name);
  if (made.kind_ != Kind::string) made.data_ = std::make_shared<const Text>();
  made.kind_ = Kind::undefined;
  made.user_ = made.markup_ = false;
  made.scalar_.owner = owner;
  return made;
}

Value Value::undefined_because(std::string_view message) {
  return undefined(control(message), "");
}

double Value::as_double() const {
  return kind_ == Kind::floating ? scalar_.floating : static_cast<double>(scalar_.integer);
}

Value Value::as_markup() const {
  Value copy = *this;
  copy.markup_ = true;
  return copy;
}

Value Value::without_markup() const {
  Value copy = *this;
  copy.markup_ = false;
  return copy;
}

std::string Value::undefined_message() const {
  std::string name = printable(as_view());
  if (scalar_.owner == nullptr) return fmt::format("'{}' is undefined", name);
  if (*scalar_.owner == '\0') return name;
  if (name.empty()) return fmt::format("a {} does not have the element that is used", scalar_.owner);
  return fmt::format("a {} has no attribute '{}'", scalar_.owner, name);
}

int Value::depth() const {
  if (kind_ == Kind::sequence) return as_sequence().depth;
  return kind_ == Kind::dict ? as_dict().depth : 0;
}

uint64_t Value::weight() const {
  if (kind_ == Kind::sequence) return as_sequence().weight;
  if (kind_ == Kind::dict) return as_dict().weight;
  return kind_ == Kind::string ? 1 + as_text().size() / 64 : 1;
}

std::string_view Value::type_name() const {
  switch (kind_) {
    case Kind::undefined:
      return "undefined";
    case Kind::none:
      return "none";
    case Kind::boolean:
      return "boolean";
    case Kind::integer:
      return "integer";
    case Kind::floating:
      return "float";
    case Kind::string:
      return "string";
    case Kind::sequence:
      return as_sequence().is_tuple() ? "tuple" : as_sequence().form == Sequence::Form::list ? "list" : "sequence";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return "object";
  }
  return "value";
}

size_t Dict::position(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(fmt::format("s{}", key));
    return found == index_.end() ? entries.size() : found->second;
  }
  size_t i = 0;
  while (i < entries.size() && !(entries[i].first.is(Kind::string) && entries[i].first.as_view() == key)) ++i;
  return i;
}

size_t Dict::position(const Value& key) const {
  if (key.is(Kind::string)) return position(key.as_view());
  if (!index_.empty()) {
    const auto found = index_.find(index_key(key));
    return found == index_.end() ? entries.size() : found->second;
  }
  size_t i = 0;
  while (i < entries.size() && !equal(entries[i].first, key)) ++i;
  return i;
}

void Dict::add_to_index(size_t entry) {
  index_.emplace(index_key(entries[entry].first), entry);
}

void Dict::set(const Value& key, Value value) {
  if (!is_hashable(key)) throw Failure(fmt::format("a {} cannot be a key of a dict", key.type_name()));
  const size_t found = position(key);
  if (found < entries.size()) {
    entries[found].second = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (!index_.empty()) {
    add_to_index(found);
  } else if (entries.size() > kIndexedEntries) {
    for (size_t i = 0; i < entries.size(); ++i) add_to_index(i);
  }
}

const Value* Dict::find(std::string_view key) const {
  const size_t found = position(key);
  return found < entries.size() ? &entries[found].second : nullptr;
}

const Value* Dict::find(const Value& key) const {
  const size_t found = position(key);
  return found < entries.size() ? &entries[found].second : nullptr;
}

bool is_hashable(const Value& value) {
  if (value.is(Kind::dict)) return false;
  if (!value.is(Kind::sequence)) return true;
  const Sequence& sequence = value.as_sequence();
  if (!sequence.is_tuple()) return sequence.form != Sequence::Form::list;
  return std::all_of(sequence.items.begin(), sequence.items.end(), is_hashable);
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.as_integer() != 0;
    case Kind::floating:
      return value.as_double() != 0;
    case Kind::string:
      return !value.as_text().empty();
    case Kind::sequence:
      return value.as_sequence().form == Sequence::Form::generator || !value.as_sequence().items.empty();
    case Kind::dict:
      return !value.as_dict().entries.empty();
    case Kind::object:
      return true;
  }
  return false;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string:
      return a.as_view() == b.as_view();
    case Kind::sequence:
      return equal_sequences(a.as_sequence(), b.as_sequence());
    case Kind::dict:
      return equal_dicts(a.as_dict(), b.as_dict());
    case Kind::object:
      return &a.as_object() == &b.as_object();
    default:
      return true;  // none, undefined
  }
}

bool is_undefined(const Value& value) {
  return value.is(Kind::undefined);
}

}  // namespace inferno::jinja
