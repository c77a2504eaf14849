// Metadata values of GGUF files.
//
// Every alternative of the variants below stands at the index of its GGUF type number, so that a value's type is its
// variant index. Values own their memory; arrays of numbers are typed vectors, arrays of strings one block of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace inferno {

enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
inline constexpr uint32_t kGgufTypeCount = 13;

[[nodiscard]] std::string_view gguf_type_name(GgufType type);  // "u32"

// A list of strings kept as one block of text; a vocabulary of 150,000 tokens costs two allocations.
class GgufStrings {
 public:
  GgufStrings() = default;
  explicit GgufStrings(const std::vector<std::string>& strings);

  [[nodiscard]] size_t size() const { return ends_.size(); }
  [[nodiscard]] bool empty() const { return ends_.empty(); }
  [[nodiscard]] std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  void reserve(size_t count, size_t text_bytes);
  // The returned room of `length` bytes is to be filled by the caller before the next call.
  char* append(size_t length);
  void append(std::string_view text);
  friend bool operator==(const GgufStrings&, const GgufStrings&) = default;

 private:
  std::string text_;
  std::vector<size_t> ends_;  // (size): where string i ends in text_
};

struct GgufArray {
  using Items =
      std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
                   std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>, GgufStrings,
                   std::vector<GgufArray>, std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
  Items items;

  [[nodiscard]] GgufType element_type() const { return static_cast<GgufType>(items.index()); }
  [[nodiscard]] size_t size() const;
  friend bool operator==(const GgufArray&, const GgufArray&) = default;
};

class GgufValue {
 public:
  using Data = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string, GgufArray,
                            uint64_t, int64_t, double>;

  // From exactly one of the types above: GgufValue(uint32_t{32}), GgufValue(std::string("llama")).
  template <typename T, typename = std::enable_if_t<!std::is_same_v<std::decay_t<T>, GgufValue>>>
  explicit GgufValue(T&& value) : data_(std::in_place_type<std::decay_t<T>>, std::forward<T>(value)) {}
  explicit GgufValue(const char* text) : data_(std::string(text)) {}

  [[nodiscard]] GgufType type() const { return static_cast<GgufType>(data_.index()); }
  [[nodiscard]] const Data& data() const { return data_; }
  // The value when it is of exactly this type, else null.
  template <typename T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&data_);
  }
  // "u32", "array of string": for messages.
  [[nodiscard]] std::string type_text() const;
  friend bool operator==(const GgufValue&, const GgufValue&) = default;

 private:
  Data data_;
};

// Short text for people, one line, safe for terminals, of about max_length bytes: 32, "llama", [3] 1, 2, 3,
// [151936] "!", "\"", "#", ...
[[nodiscard]] std::string value_to_string(const GgufValue& value, size_t max_length = 80);

}  // namespace inferno
