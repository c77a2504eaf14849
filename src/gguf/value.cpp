#include "gguf/value.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "base/text.h"

namespace inferno {
namespace {

static_assert(std::variant_size_v<GgufValue::Data> == kGgufTypeCount);
static_assert(std::variant_size_v<GgufArray::Items> == kGgufTypeCount);

void append_text(std::string& out, std::string_view text, size_t limit) {
  out += '"';
  out += printable(text, limit);
  out += '"';
}

void append_array(std::string& out, const GgufArray& array, size_t max_length);

template <typename T>
void append_item(std::string& out, const T& item, size_t max_length) {
  if constexpr (std::is_same_v<T, GgufArray>) {
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

void append_array(std::string& out, const GgufArray& array, size_t max_length) {
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

std::string_view gguf_type_name(GgufType type) {
  static constexpr std::array<std::string_view, kGgufTypeCount> kNames = {
      "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

GgufStrings::GgufStrings(const std::vector<std::string>& strings) {
  size_t total = 0;
  for (const std::string& text : strings) total += text.size();
  reserve(strings.size(), total);
  for (const std::string& text : strings) append(text);
}

void GgufStrings::reserve(size_t count, size_t text_bytes) {
  ends_.reserve(count);
  text_.reserve(text_bytes);
}

char* GgufStrings::append(size_t length) {
  const size_t begin = text_.size();
  text_.resize(begin + length);
  ends_.push_back(begin + length);
  return text_.data() + begin;
}

void GgufStrings::append(std::string_view text) {
  char* room = append(text.size());
  if (!text.empty()) std::memcpy(room, text.data(), text.size());
}

size_t GgufArray::size() const {
  return std::visit([](const auto& list) { return list.size(); }, items);
}

std::string GgufValue::type_text() const {
  const auto* array = as<GgufArray>();
  if (array == nullptr) return std::string(gguf_type_name(type()));
  return fmt::format("array of {}", gguf_type_name(array->element_type()));
}

std::string value_to_string(const GgufValue& value, size_t max_length) {
  std::string out;
  std::visit([&](const auto& item) { append_item(out, item, max_length); }, value.data());
  return out;
}

}  // namespace inferno
