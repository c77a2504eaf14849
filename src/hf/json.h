// JSON files of a folder, read with bounds: a document as a tree of few values, or value by value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace inferno::hf {

using Json = nlohmann::json;

// A tree of more values is refused: each costs far more memory than text.
inline constexpr size_t kMaxTreeValues = size_t{1} << 17;
inline constexpr size_t kMaxJsonDepth = 64;
// A longer string or number is refused: the parser keeps several copies of it.
inline constexpr size_t kMaxJsonToken = size_t{8} << 20;

// All of a regular file; one of more than `limit` bytes is an Error.
[[nodiscard]] std::string read_small_file(const std::string& path, uint64_t limit);
[[nodiscard]] bool file_exists(const std::string& path);

// `path` is what messages call the text. `keep` says which members of the outermost object are wanted; empty: all.
[[nodiscard]] Json parse_json(std::string_view text, const std::string& path,
                              const std::function<bool(std::string_view key)>& keep = {});

// Where a value is: the member of an object, or the position in an array.
struct JsonStep {
  std::string key;
  size_t index = 0;
  bool is_item = false;  // of an array
};
using JsonPath = std::span<const JsonStep>;
using JsonScalar = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string_view>;

class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;
  virtual void begin(JsonPath /*path*/) {}  // an object or an array
  virtual void value(JsonPath path, const JsonScalar& scalar) = 0;

 protected:
  JsonVisitor() = default;
  JsonVisitor(const JsonVisitor&) = default;
  JsonVisitor& operator=(const JsonVisitor&) = default;
};

// Visits all values in order, without keeping them.
void scan_json(std::string_view text, const std::string& path, JsonVisitor& visitor);

// The number when it is a whole one of 0 or more.
[[nodiscard]] const uint64_t* as_uint(const JsonScalar& scalar);
[[nodiscard]] const std::string_view* as_text(const JsonScalar& scalar);

}  // namespace inferno::hf
