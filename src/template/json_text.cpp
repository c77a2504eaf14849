// json.dumps() and its inverse.
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "template/operators.h"
#include "template/unicode.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  void write(const Value& value, int level) {
    const Run::Nested nested(run_);
    run_.step();
    switch (value.kind()) {
      case Kind::none:
        return put("null");
      case Kind::boolean:
      case Kind::integer:
      case Kind::floating:
        return out_.append(number(value), !value.is_user());
      case Kind::string:
        return write_string(value.as_text());
      case Kind::sequence:
        if (value.as_sequence().form == Sequence::Form::list || value.as_sequence().is_tuple()) {
          return write_list(value.as_sequence(), level);
        }
        break;
      case Kind::dict:
        return write_dict(value.as_dict(), level);
      default:
        break;
    }
    throw Failure(fmt::format("tojson cannot write a value of type {}", value.type_name()));
  }
  [[nodiscard]] Text take() { return std::move(out_); }

 private:
  void put(std::string_view text) { out_.append(text, true); }

  static std::string number(const Value& value) {
    if (value.is(Kind::boolean)) return value.as_boolean() ? "true" : "false";
    if (value.is(Kind::integer)) return std::to_string(value.as_integer());
    const double number = value.as_double();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return format_float(number);
  }

  void new_line(int level) {
    if (!style_.indent) return;
    run_.charge(style_.indent->size() * static_cast<size_t>(level));
    put("\n");
    for (int i = 0; i < level; ++i) out_.append(*style_.indent);
  }

  void write_list(const Sequence& sequence, int level) {
    if (sequence.items.empty()) return put("[]");
    put("[");
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      write(sequence.items[i], level + 1);
    }
    new_line(level);
    put("]");
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.entries.empty()) return put("{}");
    std::vector<Value> keys;
    for (const auto& entry : dict.entries) keys.push_back(entry.first);
    if (style_.sort_keys) {
      sort_values(keys, [&](const Value& a, const Value& b) { return less(run_, a, b); });
    }
    put("{");
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(level + 1);
      write_key(keys[i]);
      out_.append(style_.key_separator);
      write(style_.sort_keys ? *dict.find(keys[i]) : dict.entries[i].second, level + 1);
    }
    new_line(level);
    put("}");
  }

  void write_key(const Value& key) {
    if (key.is(Kind::string)) return write_string(key.as_text());
    if (!key.is(Kind::none) && !key.is_number()) {
      throw Failure(fmt::format("tojson cannot write a key of type {}", key.type_name()));
    }
    put("\"");
    out_.append(key.is(Kind::none) ? "null" : number(key), !key.is_user());
    put("\"");
  }

  void write_string(const Text& text) {
    run_.charge(text.size());
    put("\"");
    text.each_run(0, text.size(), [&](std::string_view run, bool control) {
      std::string escaped;
      for (size_t i = 0; i < run.size();) {
        const Character c = character_at(run, i);
        append_escaped(escaped, run.substr(i, c.size), c.code);
        i += c.size;
      }
      out_.append(escaped, control);
    });
    put("\"");
  }

  void append_escaped(std::string& out, std::string_view bytes, char32_t code) const {
    switch (code) {
      case '"':
        out += "\\\"";
        return;
      case '\\':
        out += "\\\\";
        return;
      case '\n':
        out += "\\n";
        return;
      case '\r':
        out += "\\r";
        return;
      case '\t':
        out += "\\t";
        return;
      case '\f':
        out += "\\f";
        return;
      case '\b':
        out += "\\b";
        return;
      default:
        break;
    }
    const auto number = static_cast<uint32_t>(code);
    if (code < 0x20 || (style_.ensure_ascii && code > 0x7F && code < 0x10000)) {
      out += fmt::format("\\u{:04x}", number);
    } else if (style_.ensure_ascii && code >= 0x10000 && code < kInvalid) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (number >> 10), 0xDC00 + (number & 0x3FF));
    } else {
      out += bytes;
    }
  }

  Run& run_;
  const JsonStyle& style_;
  Text out_;
};

Value convert(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxDepth) fail_usage("messages, tools and template variables may be nested {} deep", kMaxDepth);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::boolean(json.get<bool>(), true);
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::integer(json.get<int64_t>(), true);
    case nlohmann::ordered_json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) return Value::floating(json.get<double>(), true);
      return Value::integer(json.get<int64_t>(), true);
    case nlohmann::ordered_json::value_t::number_float:
      return Value::floating(json.get<double>(), true);
    case nlohmann::ordered_json::value_t::string:
      return Value::user(json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      Sequence sequence;
      for (const auto& item : json) sequence.items.push_back(convert(item, depth + 1));
      return Value::sequence(std::move(sequence));
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(Value::user(key), convert(value, depth + 1));
      return Value::dict(std::move(dict));
    }
    default:
      return {};
  }
}

}  // namespace

Text to_json(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.write(value, 0);
  return writer.take();
}

Value from_json(const nlohmann::ordered_json& json) {
  return convert(json, 0);
}

}  // namespace inferno::jinja
