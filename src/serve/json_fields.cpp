#include "serve/json_fields.h"

#include <cmath>
#include <limits>

#include "base/json_limits.h"
#include "serve/api_error.h"

namespace inferno::serve {

Json parse_object(std::string_view text) {
  const std::string fault = json_fault(text, {.depth = kMaxJsonDepth, .values = kMaxJsonValues});
  if (!fault.empty()) throw ApiError(400, fmt::format("the body {}", fault));
  Json parsed = Json::parse(text);
  if (!parsed.is_object()) throw ApiError(400, fmt::format("the body is {}, must be an object", kind_of(parsed)));
  return parsed;
}

std::string_view kind_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    default:
      return "a number";
  }
}

std::optional<int64_t> integer_of(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  constexpr double kExact = 9007199254740992;  // 2^53
  if (!(std::abs(number) <= kExact) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

const Json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Fields::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail_field(path(name), "is {}, must be true or false", kind_of(*value));
  return value->get<bool>();
}

std::optional<double> Fields::number(const char* name, double least, double most) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail_field(path(name), "is {}, must be a number", kind_of(*value));
  const auto number = value->get<double>();
  if (!(number >= least && number <= most)) {
    fail_field(path(name), "is {}, must be a number from {} to {}", number, least, most);
  }
  return number;
}

std::optional<int64_t> Fields::integer(const char* name, int64_t least, int64_t most) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail_field(path(name), "is {}, must be an integer", kind_of(*value));
  const std::optional<int64_t> number = integer_of(*value);
  if (!number || *number < least || *number > most) {
    fail_field(path(name), "is {}, must be an integer from {} to {}", value->dump(), least, most);
  }
  return number;
}

const std::string* Fields::string(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_string()) fail_field(path(name), "is {}, must be a string", kind_of(*value));
  return value->get_ptr<const std::string*>();
}

const Json* Fields::array(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) fail_field(path(name), "is {}, must be an array", kind_of(*value));
  return value;
}

const Json* Fields::object(const char* name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) fail_field(path(name), "is {}, must be an object", kind_of(*value));
  return value;
}

nlohmann::ordered_json ordered_field(std::string_view body, const char* name) {
  nlohmann::ordered_json parsed = nlohmann::ordered_json::parse(body, nullptr, false);
  const auto found = parsed.find(name);
  if (found == parsed.end()) fail_field(name, "is not clear");
  return std::move(*found);
}

}  // namespace inferno::serve
