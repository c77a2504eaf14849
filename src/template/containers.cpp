// Membership, iteration, length, elements and slices.
#include <fmt/core.h>

#include <algorithm>

#include "template/object.h"
#include "template/operators.h"
#include "template/text_ops.h"
#include "template/unicode.h"

namespace inferno::jinja {
namespace {

[[noreturn]] void fail_type(const Value& value, std::string_view what) {
  throw Failure(fmt::format("a {} {}", value.type_name(), what));
}

std::vector<Value> characters(Run& run, const Text& text) {
  std::vector<Value> items;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i + character_at(text.view(), i).size;
    items.push_back(run.text(text.slice(i, end)));
    i = end;
  }
  return items;
}

struct Bounds {
  int64_t begin, end, step;
};

// As Python's slice.indices().
Bounds resolve_slice(int64_t length, const Value* begin, const Value* end, const Value* step) {
  const auto given = [](const Value* value) { return value != nullptr && !value->is(Kind::none); };
  const auto index = [](const Value* value) { return to_index(*value, "a slice"); };
  Bounds bounds{0, 0, given(step) ? index(step) : 1};
  if (bounds.step == 0) throw Failure("the step of a slice is 0");
  bounds.step = std::max<int64_t>(bounds.step, -INT64_MAX);
  const bool backward = bounds.step < 0;
  const int64_t low = backward ? -1 : 0;
  const int64_t high = backward ? length - 1 : length;
  const auto clamp = [&](int64_t value) {
    if (value < 0) value = value < -length ? low : value + length;
    return std::clamp(value, low, high);
  };
  bounds.begin = given(begin) ? clamp(index(begin)) : backward ? high : low;
  bounds.end = given(end) ? clamp(index(end)) : backward ? low : high;
  return bounds;
}

template <typename F>
void each_index(const Bounds& bounds, F f) {
  int64_t at = bounds.begin;
  while (bounds.step > 0 ? at < bounds.end : at > bounds.end) {
    f(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, bounds.step, &at)) break;
  }
}

Value slice_text(Run& run, const Value& value, const Value* begin, const Value* end, const Value* step) {
  const Text& text = value.as_text();
  run.step(1 + text.size() / 16);
  const Bounds bounds = resolve_slice(static_cast<int64_t>(count_characters(text.view())), begin, end, step);
  if (bounds.step == 1) {
    const size_t from = offset_of(text.view(), static_cast<size_t>(bounds.begin));
    const auto count = static_cast<size_t>(std::max<int64_t>(bounds.end - bounds.begin, 0));
    const size_t to = from + offset_of(text.view().substr(from), count);
    return run.text(text.slice(from, to), value.is_markup());
  }
  std::vector<size_t> offsets;
  run.charge(text.size() * sizeof(size_t));
  for (size_t i = 0; i < text.size(); i += character_at(text.view(), i).size) offsets.push_back(i);
  offsets.push_back(text.size());
  Text out;
  each_index(bounds, [&](size_t i) { out.append(text, offsets[i], offsets[i + 1]); });
  return run.text(std::move(out), value.is_markup());
}

}  // namespace

int64_t to_index(const Value& value, std::string_view what) {
  if (is_undefined(value)) throw Failure(value.undefined_message());
  if (!value.is_integral()) throw Failure(fmt::format("{} needs an integer, not a {}", what, value.type_name()));
  return value.as_integer();
}

bool contains(Run& run, const Value& container, const Value& item) {
  run.step(container.weight());
  switch (container.kind()) {
    case Kind::string:
      if (!item.is(Kind::string)) fail_type(item, "cannot be part of a string");
      return find_part(container.as_view(), item.as_view()) != std::string_view::npos;
    case Kind::sequence: {
      const Sequence& sequence = container.as_sequence();
      const bool reads = sequence.form == Sequence::Form::generator;
      for (size_t i = reads ? sequence.next : 0; i < sequence.items.size(); ++i) {
        if (reads) sequence.next = i + 1;
        if (equals(run, sequence.items[i], item)) return true;
      }
      if (!sequence.failure.empty()) throw Failure(sequence.failure);
      return false;
    }
    case Kind::dict:
      if (!is_hashable(item)) fail_type(item, "cannot be a key of a dict");
      return container.as_dict().find(item) != nullptr;
    case Kind::undefined:
      return false;
    default:
      fail_type(container, "contains nothing");
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::sequence:
    case Kind::dict:
      return true;
    case Kind::object:
      return value.as_object().type() == Object::Type::loop;
    default:
      return false;
  }
}

std::vector<Value> iterate(Run& run, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return {};
    case Kind::string:
      return characters(run, value.as_text());
    case Kind::sequence: {
      const Sequence& sequence = value.as_sequence();
      run.charge(sequence.items.size() * sizeof(Value));
      if (sequence.form != Sequence::Form::generator) return sequence.items;
      if (!sequence.failure.empty()) throw Failure(sequence.failure);
      const size_t begin = std::exchange(sequence.next, sequence.items.size());
      return {sequence.items.begin() + static_cast<std::ptrdiff_t>(begin), sequence.items.end()};
    }
    case Kind::dict: {
      std::vector<Value> keys;
      run.charge(value.as_dict().entries.size() * sizeof(Value));
      for (const auto& entry : value.as_dict().entries) keys.push_back(entry.first);
      return keys;
    }
    default:
      fail_type(value, "cannot be iterated over");
  }
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return static_cast<int64_t>(count_characters(value.as_view()));
    case Kind::sequence:
      if (value.as_sequence().form == Sequence::Form::generator) fail_type(value, "has no length");
      return static_cast<int64_t>(value.as_sequence().items.size());
    case Kind::dict:
      return static_cast<int64_t>(value.as_dict().entries.size());
    case Kind::object:
      if (value.as_object().type() == Object::Type::loop) {
        return static_cast<int64_t>(static_cast<const LoopObject&>(value.as_object()).items->size());
      }
      break;
    default:
      break;
  }
  fail_type(value, "has no length");
}

const Value* element(const Sequence& sequence, const Value& index) {
  if (!sequence.is_indexed() || !index.is_integral()) return nullptr;
  const auto size = static_cast<int64_t>(sequence.items.size());
  const int64_t at = index.as_integer() < 0 ? index.as_integer() + size : index.as_integer();
  return at >= 0 && at < size ? &sequence.items[static_cast<size_t>(at)] : nullptr;
}

Value slice(Run& run, const Value& value, const Value* begin, const Value* end, const Value* step) {
  if (value.is(Kind::string)) return slice_text(run, value, begin, end, step);
  if (is_undefined(value)) throw Failure(value.undefined_message());
  if (!value.is(Kind::sequence) || !value.as_sequence().is_indexed()) fail_type(value, "cannot be sliced");
  const Sequence& sequence = value.as_sequence();
  const Bounds bounds = resolve_slice(static_cast<int64_t>(sequence.items.size()), begin, end, step);
  std::vector<Value> items;
  each_index(bounds, [&](size_t i) { items.push_back(sequence.items[i]); });
  if (sequence.form != Sequence::Form::range) {
    return run.list(std::move(items), sequence.is_tuple() ? Sequence::Form::tuple : sequence.form);
  }
  // At most 100,000 numbers: what follows cannot overflow by more than it did when the range was made.
  Sequence part{.form = Sequence::Form::range, .items = std::move(items)};
  const auto at = [&](int64_t index) {
    return static_cast<int64_t>(static_cast<uint64_t>(sequence.begin) +
                                static_cast<uint64_t>(index) * static_cast<uint64_t>(sequence.step));
  };
  part.begin = at(bounds.begin);
  part.end = at(bounds.end);
  part.step = static_cast<int64_t>(static_cast<uint64_t>(sequence.step) * static_cast<uint64_t>(bounds.step));
  run.charge(part.items.size() * sizeof(Value));
  return Value::sequence(std::move(part));
}

void sort_values(std::vector<Value>& values, const std::function<bool(const Value&, const Value&)>& before) {
  // Bottom-up merges: unlike std::stable_sort it stays inside its memory for any answers of `before` (NaN has no
  // order).
  std::vector<Value> merged(values.size());
  for (size_t width = 1; width < values.size(); width *= 2) {
    for (size_t begin = 0; begin < values.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, values.size());
      const size_t end = std::min(begin + 2 * width, values.size());
      size_t a = begin;
      size_t b = middle;
      for (size_t out = begin; out < end; ++out) {
        const bool take_b = a == middle || (b < end && before(values[b], values[a]));
        merged[out] = take_b ? values[b++] : values[a++];
      }
    }
    values.swap(merged);
  }
}

}  // namespace inferno::jinja
