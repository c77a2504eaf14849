#include "grammar/schema_document.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "base/json_limits.h"
#include "base/text.h"

namespace inferno::grammar {
namespace {

constexpr auto kEnforced = std::to_array<std::string_view>({"type",
                                                            "enum",
                                                            "const",
                                                            "properties",
                                                            "required",
                                                            "additionalProperties",
                                                            "patternProperties",
                                                            "propertyNames",
                                                            "items",
                                                            "prefixItems",
                                                            "additionalItems",
                                                            "minItems",
                                                            "maxItems",
                                                            "minLength",
                                                            "maxLength",
                                                            "pattern",
                                                            "format",
                                                            "minimum",
                                                            "maximum",
                                                            "exclusiveMinimum",
                                                            "exclusiveMaximum",
                                                            "multipleOf",
                                                            "minProperties",
                                                            "maxProperties",
                                                            "anyOf",
                                                            "oneOf",
                                                            "allOf",
                                                            "$ref"});
constexpr auto kAnnotations = std::to_array<std::string_view>(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "$schema", "$id",
     "id", "$anchor", "$defs", "definitions", "$vocabulary", "contentEncoding", "contentMediaType", "contentSchema"});
constexpr auto kRefused = std::to_array<std::string_view>(
    {"not",          "if",          "then",           "else",          "dependentRequired",     "dependentSchemas",
     "dependencies", "contains",    "minContains",    "maxContains",   "unevaluatedProperties", "unevaluatedItems",
     "uniqueItems",  "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor",      "nullable",
     "divisibleBy",  "disallow",    "extends"});

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const int letter = c | 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// The member or item that one part of a pointer names; null: there is none.
const SchemaJson* child(const SchemaJson& of, std::string part) {
  for (size_t at = 0; (at = part.find('~', at)) != std::string::npos; ++at) {
    const bool slash = part.compare(at, 2, "~1") == 0;
    part.erase(at, 1);
    if (slash) part[at] = '/';
    if (!slash && at < part.size()) part[at] = '~';
  }
  if (of.is_object()) {
    const auto member = of.find(part);
    return member == of.end() ? nullptr : &*member;
  }
  const std::optional<int64_t> index = of.is_array() ? parse_int(part) : std::nullopt;
  if (!index || *index < 0 || static_cast<size_t>(*index) >= of.size()) return nullptr;
  return &of[static_cast<size_t>(*index)];
}

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return printable(out);
}

// Almost the same letters: a keyword with a slip, not another word.
bool is_misspelt(std::string word, std::string_view keyword) {
  constexpr size_t kShortest = 6;
  constexpr size_t kSlips = 2;
  if (std::min(word.size(), keyword.size()) < kShortest || !word.starts_with(keyword.front())) return false;
  size_t common = 0;
  for (const char c : keyword) {
    const size_t at = word.find(c);
    if (at == std::string::npos) continue;
    word.erase(at, 1);
    ++common;
  }
  return keyword.size() - common + word.size() <= kSlips;
}

// Whether keywords mean what the specification says: a meta-schema of one's own may leave some of them without effect.
bool is_known_dialect(const SchemaJson& name) {
  if (!name.is_string()) return false;
  const std::string_view uri = name.get_ref<const std::string&>();
  for (const std::string_view prefix : {"https://", "http://"}) {
    if (uri.starts_with(prefix)) return uri.substr(prefix.size()).starts_with("json-schema.org/");
  }
  return false;
}

bool has_reference(const SchemaJson& in) {
  if (in.is_object() && in.contains("$ref")) return true;
  return std::ranges::any_of(in, [](const SchemaJson& part) { return part.is_structured() && has_reference(part); });
}

// Depth is limited by the parser.
bool find_path(const SchemaJson& in, const SchemaJson& wanted, std::string& path) {
  if (&in == &wanted) return true;
  const size_t length = path.size();
  for (const auto& item : in.items()) {
    if (!item.value().is_structured() && &item.value() != &wanted) continue;
    path.push_back('/');
    path += escaped(item.key());
    if (find_path(item.value(), wanted, path)) return true;
    path.resize(length);
  }
  return false;
}

const SchemaJson* find_anchor(const SchemaJson& in, const std::string& name) {
  if (in.is_object()) {
    const auto anchor = in.find("$anchor");
    if (anchor != in.end() && anchor->is_string() && anchor->get_ref<const std::string&>() == name) return &in;
  }
  for (const auto& item : in.items()) {
    if (!item.value().is_structured()) continue;
    if (const SchemaJson* found = find_anchor(item.value(), name)) return found;
  }
  return nullptr;
}

}  // namespace

SchemaDocument::SchemaDocument(std::string_view text, const Limits& limits) {
  if (text.size() > limits.source_bytes) fail_usage("the JSON schema has more than {} bytes", limits.source_bytes);
  const std::string fault = json_fault(
      text, {.depth = static_cast<size_t>(limits.depth), .values = limits.json_values, .members = limits.json_members});
  if (!fault.empty()) fail_usage("the JSON schema {}", fault);
  root_ = SchemaJson::parse(text);
  if (!root_.is_object() && !root_.is_boolean()) fail_usage("the JSON schema must be an object or true");
  if (root_.is_object()) {
    const auto draft = root_.find("$schema");
    old_draft_ = draft != root_.end() && draft->is_string() &&
                 draft->get_ref<const std::string&>().find("/draft-0") != std::string::npos;
  }
}

void SchemaDocument::check_keywords(const SchemaJson& schema) {
  if (!checked_.insert(&schema).second) return;
  for (const auto& item : schema.items()) {
    const std::string& key = item.key();
    if (contains(kEnforced, key)) continue;
    if (key == "$id" || key == "id") {
      // It would change what the references inside of it mean.
      const bool changes_base = &schema != &root_ && item.value().is_string() &&
                                !item.value().get_ref<const std::string&>().starts_with('#') && has_reference(schema);
      if (changes_base) fail_at(schema, key, "of a part of a schema is not supported");
    }
    if (key == "$schema" && !is_known_dialect(item.value())) {
      fail_at(schema, key, "names {}, which is not supported", printable(item.value().dump(), 100));
    }
    if (contains(kAnnotations, key)) continue;
    if (key == "uniqueItems" && item.value() == false) continue;
    if (contains(kRefused, key)) fail_at(schema, printable(key), "is not supported");
    const std::string_view meant = nearest(key, kEnforced);
    if (is_misspelt(key, meant)) fail_at(schema, printable(key), "is no keyword; did you mean `{}`?", meant);
  }
}

const SchemaJson& SchemaDocument::resolve(const SchemaJson& schema) const {
  const std::string& ref = *find_string(schema, "$ref");
  std::string_view fragment = ref;
  // The document may name itself.
  if (root_.is_object() && !fragment.starts_with('#')) {
    for (const char* key : {"$id", "id"}) {
      const auto id = root_.find(key);
      if (id == root_.end() || !id->is_string()) continue;
      std::string_view own = id->get_ref<const std::string&>();
      if (own.ends_with('#')) own.remove_suffix(1);
      if (own.empty() || !fragment.starts_with(own)) continue;
      const std::string_view rest = fragment.substr(own.size());
      if (rest.empty() || rest.starts_with('#')) fragment = rest;
    }
  }
  if (!fragment.empty() && !fragment.starts_with('#')) {
    fail_at(schema, "$ref", "names another document, \"{}\", which is not supported", printable(ref));
  }
  if (!fragment.empty()) fragment.remove_prefix(1);
  const std::string pointer = percent_decoded(fragment);
  const SchemaJson* at = &root_;
  if (!pointer.empty() && !pointer.starts_with('/')) {
    at = find_anchor(root_, pointer);
  } else {
    for (size_t begin = 1; at != nullptr && begin <= pointer.size();) {
      const size_t end = std::min(pointer.find('/', begin), pointer.size());
      at = child(*at, pointer.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (at == nullptr) fail_at(schema, "$ref", "names \"{}\", which is not there", printable(ref));
  return *at;
}

std::string SchemaDocument::path(const SchemaJson& value) const {
  std::string path = "#";
  return find_path(root_, value, path) ? path : "#";
}

const SchemaJson* SchemaDocument::find(const SchemaJson& schema, const char* keyword) const {
  const auto member = schema.find(keyword);
  return member == schema.end() ? nullptr : &*member;
}

const SchemaJson* SchemaDocument::find_array(const SchemaJson& schema, const char* keyword) const {
  const SchemaJson* value = find(schema, keyword);
  if (value != nullptr && !value->is_array()) fail_at(schema, keyword, "must be an array");
  return value;
}

const SchemaJson* SchemaDocument::find_object(const SchemaJson& schema, const char* keyword) const {
  const SchemaJson* value = find(schema, keyword);
  if (value != nullptr && !value->is_object()) fail_at(schema, keyword, "must be an object");
  return value;
}

const SchemaJson* SchemaDocument::find_number(const SchemaJson& schema, const char* keyword) const {
  const SchemaJson* value = find(schema, keyword);
  if (value != nullptr && !value->is_number()) fail_at(schema, keyword, "must be a number");
  return value;
}

const std::string* SchemaDocument::find_string(const SchemaJson& schema, const char* keyword) const {
  const SchemaJson* value = find(schema, keyword);
  if (value != nullptr && !value->is_string()) fail_at(schema, keyword, "must be a string");
  return value == nullptr ? nullptr : &value->get_ref<const std::string&>();
}

uint32_t SchemaDocument::count(const SchemaJson& schema, const char* keyword, uint32_t otherwise) const {
  const SchemaJson* value = find_number(schema, keyword);
  if (value == nullptr) return otherwise;
  const auto number = value->get<double>();
  if (!(number >= 0) || number != std::floor(number)) fail_at(schema, keyword, "must be a whole number from 0");
  return number >= UINT32_MAX ? UINT32_MAX - 1 : static_cast<uint32_t>(number);
}

}  // namespace inferno::grammar
