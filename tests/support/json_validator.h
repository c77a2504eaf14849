// A small validator of JSON schemas for tests, written apart from the grammar engine: what it says about a value comes
// from the value, not from a text. Keywords that the tests use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace inferno::testing {

class JsonValidator {
 public:
  explicit JsonValidator(nlohmann::json schema) : root_(std::move(schema)) {}

  [[nodiscard]] bool fits(const nlohmann::json& value) const { return fits(value, root_); }

 private:
  using Json = nlohmann::json;

  static bool has_type(const Json& v, const std::string& type) {
    if (type == "integer") return v.is_number() && std::floor(v.get<double>()) == v.get<double>();
    if (type == "number") return v.is_number();
    if (type == "string") return v.is_string();
    if (type == "boolean") return v.is_boolean();
    if (type == "null") return v.is_null();
    if (type == "array") return v.is_array();
    return type == "object" && v.is_object();
  }

  bool fits(const Json& v, const Json& s) const {
    if (s.is_boolean()) return s.get<bool>();
    if (s.contains("$ref")) {
      const std::string ref = s["$ref"];
      if (!fits(v, root_.at(Json::json_pointer(ref.substr(1))))) return false;
    }
    if (s.contains("type")) {
      const Json types = s["type"].is_array() ? s["type"] : Json::array({s["type"]});
      if (std::none_of(types.begin(), types.end(), [&](const Json& t) { return has_type(v, t); })) return false;
    }
    if (s.contains("const") && v != s["const"]) return false;
    if (s.contains("enum") && std::find(s["enum"].begin(), s["enum"].end(), v) == s["enum"].end()) return false;
    const auto count = [&](const char* key) {
      const Json list = s.value(key, Json::array());
      return std::count_if(list.begin(), list.end(), [&](const Json& one) { return fits(v, one); });
    };
    if (s.contains("anyOf") && count("anyOf") == 0) return false;
    if (s.contains("oneOf") && count("oneOf") != 1) return false;
    if (s.contains("allOf") && count("allOf") != static_cast<int64_t>(s["allOf"].size())) return false;
    return number_fits(v, s) && string_fits(v, s) && array_fits(v, s) && object_fits(v, s);
  }

  static bool number_fits(const Json& v, const Json& s) {
    if (!v.is_number()) return true;
    const auto x = v.get<double>();
    if (s.contains("minimum") && x < s["minimum"].get<double>()) return false;
    if (s.contains("maximum") && x > s["maximum"].get<double>()) return false;
    if (s.contains("exclusiveMinimum") && x <= s["exclusiveMinimum"].get<double>()) return false;
    if (s.contains("exclusiveMaximum") && x >= s["exclusiveMaximum"].get<double>()) return false;
    if (!s.contains("multipleOf")) return true;
    const double times = x / s["multipleOf"].get<double>();
    return std::abs(times - std::round(times)) < 1e-9 * std::max(1.0, std::abs(times));
  }

  static bool string_fits(const Json& v, const Json& s) {
    if (!v.is_string()) return true;
    const auto& text = v.get_ref<const std::string&>();
    const auto length = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
    if (s.contains("minLength") && length < s["minLength"].get<int64_t>()) return false;
    if (s.contains("maxLength") && length > s["maxLength"].get<int64_t>()) return false;
    return !s.contains("pattern") || std::regex_search(text, std::regex(s["pattern"].get<std::string>()));
  }

  bool array_fits(const Json& v, const Json& s) const {
    if (!v.is_array()) return true;
    if (s.contains("minItems") && v.size() < s["minItems"].get<size_t>()) return false;
    if (s.contains("maxItems") && v.size() > s["maxItems"].get<size_t>()) return false;
    const Json prefix = s.value("prefixItems", Json::array());
    for (size_t i = 0; i < v.size(); ++i) {
      if (i < prefix.size() ? !fits(v[i], prefix[i]) : s.contains("items") && !fits(v[i], s["items"])) return false;
    }
    return true;
  }

  bool object_fits(const Json& v, const Json& s) const {
    if (!v.is_object()) return true;
    if (s.contains("minProperties") && v.size() < s["minProperties"].get<size_t>()) return false;
    if (s.contains("maxProperties") && v.size() > s["maxProperties"].get<size_t>()) return false;
    for (const Json& name : s.value("required", Json::array())) {
      if (!v.contains(name.get<std::string>())) return false;
    }
    const Json listed = s.value("properties", Json::object());
    const Json patterns = s.value("patternProperties", Json::object());
    for (const auto& [name, content] : v.items()) {
      bool known = listed.contains(name);
      if (known && !fits(content, listed[name])) return false;
      for (const auto& [pattern, schema] : patterns.items()) {
        if (!std::regex_search(name, std::regex(pattern))) continue;
        known = true;
        if (!fits(content, schema)) return false;
      }
      if (!known && s.contains("additionalProperties") && !fits(content, s["additionalProperties"])) return false;
    }
    return true;
  }

  Json root_;
};

}  // namespace inferno::testing
