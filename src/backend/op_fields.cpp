#include "backend/op_fields.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "base/checked.h"
#include "base/text.h"

namespace inferno {
namespace {

// The number a visitor left, as the field's own type. Numbers that come from a file may be any.
template <typename T>
T field_value(std::string_view name, double number) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    // The largest integer of 64 bits is no double, the next power of two is.
    const bool fits = number >= static_cast<double>(std::numeric_limits<T>::min()) &&
                      number < std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (!fits) throw std::out_of_range(fmt::format("{} is out of range", name));
  }
  return static_cast<T>(number);
}

struct Adapter {
  FieldVisitor& visitor;

  void operator()(FieldTag tag, std::string_view name, Tensor& value) const { visitor.tensor(tag, name, value); }
  void operator()(FieldTag /*tag*/, std::string_view name, const Weight*& value) const { visitor.weight(name, value); }
  void operator()(FieldTag tag, std::string_view name, KvLayerView& value) const { visitor.kv(tag, name, value); }
  void operator()(FieldTag /*tag*/, std::string_view name, StepBatch& value) const { visitor.batch(name, value); }
  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void operator()(FieldTag /*tag*/, std::string_view name, T& value) const {
    auto number = static_cast<double>(value);
    visitor.attribute(name, number);
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(field_value<std::underlying_type_t<T>>(name, number));
    } else {
      value = field_value<T>(name, number);
    }
  }
};

class LayerFinder final : public FieldVisitor {
 public:
  void weight(std::string_view /*name*/, const Weight*& value) override {
    if (!layer && value != nullptr) layer = value->layer();
  }
  std::optional<int> layer;
};

}  // namespace

void visit_fields(OpRecord& record, FieldVisitor& visitor) {
  record.visit([&](const auto& args) {
    auto changed = args;
    changed.fields(changed, Adapter{visitor});
    record.assign(changed);
  });
}

void visit_fields(const OpRecord& record, FieldVisitor& visitor) {
  record.visit([&](const auto& args) {
    auto copy = args;
    copy.fields(copy, Adapter{visitor});
  });
}

void fail_unknown_op(std::string_view name) {
  std::vector<std::string_view> names;
  std::string list;
  for (int i = 0; i < kOpCount; ++i) {
    names.push_back(op_name(static_cast<OpId>(i)));
    list += fmt::format("{}{}", i == 0 ? "" : ", ", names.back());
  }
  const std::string_view near = nearest(name, names);
  fail_usage("unknown op \"{}\"{} (known: {})", printable(name),
             near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near), list);
}

OpId require_op(std::string_view name) {
  const std::optional<OpId> op = op_from_name(name);
  if (!op) fail_unknown_op(name);
  return *op;
}

OpRecord empty_record(OpId op) {
  OpRecord record;
  switch (op) {
#define OP(name, Args)     \
  case OpId::name:         \
    record.assign(Args{}); \
    break;
#include "backend/op_list.inc"
    default:
      check_failed(__FILE__, __LINE__, "known op");
  }
  return record;
}

void call_op(Backend& backend, const OpRecord& record) {
  record.visit([&](const auto& args) { OpOf<std::decay_t<decltype(args)>>::call(backend, args); });
}

std::optional<int> layer_of(const OpRecord& record) {
  LayerFinder finder;
  visit_fields(record, finder);
  return finder.layer;
}

int32_t pages_of(int32_t kv_len, int32_t page_size) {
  return static_cast<int32_t>(ceil_div(kv_len, page_size));
}

}  // namespace inferno
