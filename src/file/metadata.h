// Values of a model file's metadata: numbers, flags, text and arrays of them.
//
// The types, and the order of the alternatives below, are GGUF's: a value's variant index is its type number in such a
// file. Values own their memory; arrays of numbers are typed vectors, arrays of strings one block of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "file/string_list.h"

namespace inferno {

enum class MetadataType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
inline constexpr uint32_t kMetadataTypeCount = 13;

[[nodiscard]] std::string_view metadata_type_name(MetadataType type);  // "u32"

struct MetadataArray {
  using Items =
      std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
                   std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>, StringList,
                   std::vector<MetadataArray>, std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
  Items items;

  [[nodiscard]] MetadataType element_type() const { return static_cast<MetadataType>(items.index()); }
  [[nodiscard]] size_t size() const;
  friend bool operator==(const MetadataArray&, const MetadataArray&) = default;
};

class MetadataValue {
 public:
  using Data = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string,
                            MetadataArray, uint64_t, int64_t, double>;

  // From exactly one of the types above: MetadataValue(uint32_t{32}), MetadataValue(std::string("llama")).
  template <typename T, typename = std::enable_if_t<!std::is_same_v<std::decay_t<T>, MetadataValue>>>
  explicit MetadataValue(T&& value) : data_(std::in_place_type<std::decay_t<T>>, std::forward<T>(value)) {}
  explicit MetadataValue(const char* text) : data_(std::string(text)) {}

  [[nodiscard]] MetadataType type() const { return static_cast<MetadataType>(data_.index()); }
  [[nodiscard]] const Data& data() const { return data_; }
  // The value when it is of exactly this type, else null.
  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&data_);
  }
  // "u32", "array of string": for messages.
  [[nodiscard]] std::string type_text() const;
  friend bool operator==(const MetadataValue&, const MetadataValue&) = default;

 private:
  Data data_;
};

// The value as a number when it is one: an integer of any width that fits, f32 or f64. Empty otherwise.
[[nodiscard]] std::optional<int64_t> as_int64(const MetadataValue& value);
[[nodiscard]] std::optional<uint64_t> as_uint64(const MetadataValue& value);
[[nodiscard]] std::optional<double> as_double(const MetadataValue& value);

struct MetadataEntry {
  std::string key;
  MetadataValue value;
};

// Short text for people, one line, safe for terminals, of about max_length bytes: 32, "llama", [3] 1, 2, 3,
// [151936] "!", "\"", "#", ...
[[nodiscard]] std::string value_to_string(const MetadataValue& value, size_t max_length = 80);

}  // namespace inferno
