// JSON from strangers: parsed within limits, read field by field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace inferno::serve {

using Json = nlohmann::json;

inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonValues = 2'000'000;

// A JSON object; anything else is an ApiError 400.
[[nodiscard]] Json parse_object(std::string_view text);

// The fields of an object. A field that is missing or null is empty; one of another type or out of range is an ApiError
// that names it. Fields nobody asks for do not matter.
class Fields {
 public:
  // prefix: what comes before the names in messages, "stream_options."; the object outlives this.
  explicit Fields(const Json& object, std::string prefix = {}) : object_(object), prefix_(std::move(prefix)) {}

  [[nodiscard]] const Json* find(const char* name) const;  // null: missing or null
  [[nodiscard]] std::optional<bool> boolean(const char* name) const;
  [[nodiscard]] std::optional<double> number(const char* name, double least, double most) const;
  // 3.0 is the integer 3.
  [[nodiscard]] std::optional<int64_t> integer(const char* name, int64_t least, int64_t most) const;
  [[nodiscard]] const std::string* string(const char* name) const;
  [[nodiscard]] const Json* array(const char* name) const;
  [[nodiscard]] const Json* object(const char* name) const;
  [[nodiscard]] std::string path(const char* name) const { return prefix_ + name; }

 private:
  const Json& object_;
  std::string prefix_;
};

// A field of the object that `body` is, with its members in the order in which they are written there: those of a
// schema and of arguments mean something. A field that is there twice may be an ApiError.
[[nodiscard]] nlohmann::ordered_json ordered_field(std::string_view body, const char* name);

// "a string", "an array": for messages.
[[nodiscard]] std::string_view kind_of(const Json& value);
// The integer that a number is; empty: it is none, or does not fit.
[[nodiscard]] std::optional<int64_t> integer_of(const Json& value);

}  // namespace inferno::serve
