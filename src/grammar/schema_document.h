// A JSON schema as a document: parsed within limits, keywords known or refused, references resolved.
#pragma once

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "grammar/limits.h"

namespace inferno::grammar {

// Objects keep the order of their members: it is the order in which properties are written.
using SchemaJson = nlohmann::ordered_json;

// How messages begin that name a place.
inline constexpr std::string_view kSchemaError = "the JSON schema:";

class SchemaDocument {
 public:
  // What is not JSON, or too large or deep, is an Error.
  SchemaDocument(std::string_view text, const Limits& limits);

  [[nodiscard]] const SchemaJson& root() const { return root_; }
  // Drafts before 2019 ignore what is beside a $ref.
  [[nodiscard]] bool ref_stands_alone() const { return old_draft_; }
  // An Error for a keyword that is not enforced; annotations and unknown words are no keywords.
  void check_keywords(const SchemaJson& schema);
  // Within this document only; what cannot be found is an Error.
  [[nodiscard]] const SchemaJson& resolve(const SchemaJson& schema) const;
  // "#/properties/name"; of a value in this document.
  [[nodiscard]] std::string path(const SchemaJson& value) const;

  // The Error about a keyword: where it is and what is wrong with it.
  template <typename... Args>
  [[noreturn]] void fail_at(const SchemaJson& schema, std::string_view keyword, fmt::format_string<Args...> format,
                            Args&&... args) const {
    fail_usage("{} `{}` at {} {}", kSchemaError, keyword, path(schema),
               fmt::format(format, std::forward<Args>(args)...));
  }

  // The keyword's value; null: it is missing. Of another type it is an Error.
  [[nodiscard]] const SchemaJson* find(const SchemaJson& schema, const char* keyword) const;
  [[nodiscard]] const SchemaJson* find_array(const SchemaJson& schema, const char* keyword) const;
  [[nodiscard]] const SchemaJson* find_object(const SchemaJson& schema, const char* keyword) const;
  [[nodiscard]] const SchemaJson* find_number(const SchemaJson& schema, const char* keyword) const;
  [[nodiscard]] const std::string* find_string(const SchemaJson& schema, const char* keyword) const;
  // A count: a whole number from 0; `otherwise` where it is missing.
  [[nodiscard]] uint32_t count(const SchemaJson& schema, const char* keyword, uint32_t otherwise) const;

 private:
  SchemaJson root_;
  bool old_draft_ = false;
  std::unordered_set<const SchemaJson*> checked_;
};

}  // namespace inferno::grammar
