#include "file/metadata.h"

#include <fmt/format.h>

#include <array>
#include <type_traits>

#include "base/text.h"

namespace inferno {
namespace {

static_assert(std::variant_size_v<MetadataValue::Data> == kMetadataTypeCount);
static_assert(std::variant_size_v<MetadataArray::Items> == kMetadataTypeCount);

void append_text(std::string& out, std::string_view text, size_t limit) {
  out += '"';
  out += printable(text, limit);
  out += '"';
}

void append_array(std::string& out, const MetadataArray& array, size_t max_length);

template <typename T>
void append_item(std::string& out, const T& item, size_t max_length) {
  if constexpr (std::is_same_v<T, MetadataArray>) {
    append_array(out, item, max_length);
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>) {
    append_text(out, item, max_length > out.size() ? max_length - out.size() : 1);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    fmt::format_to(std::back_inserter(out), "{}",
                   static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(item));
  } else {
    fmt::format_to(std::back_inserter(out), "{}", item);
  }
}

void append_array(std::string& out, const MetadataArray& array, size_t max_length) {
  fmt::format_to(std::back_inserter(out), "[{}]", array.size());
  std::visit(
      [&](const auto& items) {
        for (size_t i = 0; i < items.size(); ++i) {
          out += i == 0 ? " " : ", ";
          if (out.size() >= max_length) {
            out += "...";
            return;
          }
          if constexpr (std::is_same_v<std::decay_t<decltype(items)>, std::vector<bool>>) {
            append_item(out, static_cast<bool>(items[i]), max_length);  // items[i] is a proxy, not a bool
          } else {
            append_item(out, items[i], max_length);
          }
        }
      },
      array.items);
}

}  // namespace

std::string_view metadata_type_name(MetadataType type) {
  static constexpr std::array<std::string_view, kMetadataTypeCount> kNames = {
      "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

size_t MetadataArray::size() const {
  return std::visit([](const auto& list) { return list.size(); }, items);
}

std::string MetadataValue::type_text() const {
  const auto* array = as<MetadataArray>();
  if (array == nullptr) return std::string(metadata_type_name(type()));
  return fmt::format("array of {}", metadata_type_name(array->element_type()));
}

std::optional<int64_t> as_int64(const MetadataValue& value) {
  return std::visit(
      []<typename T>(const T& item) -> std::optional<int64_t> {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          if (std::in_range<int64_t>(item)) return static_cast<int64_t>(item);
        }
        return std::nullopt;
      },
      value.data());
}

std::optional<uint64_t> as_uint64(const MetadataValue& value) {
  if (const auto* item = value.as<uint64_t>()) return *item;
  const std::optional<int64_t> item = as_int64(value);
  if (!item || *item < 0) return std::nullopt;
  return static_cast<uint64_t>(*item);
}

std::optional<double> as_double(const MetadataValue& value) {
  if (const auto* item = value.as<float>()) return *item;
  if (const auto* item = value.as<double>()) return *item;
  return std::nullopt;
}

std::string value_to_string(const MetadataValue& value, size_t max_length) {
  std::string out;
  std::visit([&](const auto& item) { append_item(out, item, max_length); }, value.data());
  return out;
}

}  // namespace inferno
