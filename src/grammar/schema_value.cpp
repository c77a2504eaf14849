#include "grammar/schema_value.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "grammar/regex_syntax.h"
#include "grammar/string_formats.h"

namespace inferno::grammar {
namespace {

uint32_t type_bits(const SchemaJson& schema, const SchemaJson& name, const SchemaDocument& document) {
  if (!name.is_string()) document.fail_at(schema, "type", "must be a string or an array of strings");
  const auto& text = name.get_ref<const std::string&>();
  if (text == "null") return kNull;
  if (text == "boolean") return kBoolean;
  if (text == "object") return kObject;
  if (text == "array") return kArray;
  if (text == "string") return kString;
  if (text == "integer") return kInteger;
  if (text == "number") return kInteger | kFraction;
  if (text == "any") return kAnyType;
  document.fail_at(schema, "type", "names \"{}\", which is no type", printable(text));
}

class Merger {
 public:
  explicit Merger(const SchemaDocument& document) : document_(document) {}

  void add(const SchemaJson& schema) {
    add_types(schema);
    add_values(schema);
    add_numbers(schema);
    add_strings(schema);
    add_arrays(schema);
    add_objects(schema);
  }

  ValueSpec spec;

 private:
  void add_types(const SchemaJson& schema) {
    const SchemaJson* type = document_.find(schema, "type");
    if (type == nullptr) return;
    uint32_t bits = 0;
    if (type->is_array()) {
      for (const SchemaJson& name : *type) bits |= type_bits(schema, name, document_);
    } else {
      bits = type_bits(schema, *type, document_);
    }
    spec.types &= bits;
  }

  void add_values(const SchemaJson& schema) {
    const auto restrict_to = [&](const std::vector<const SchemaJson*>& given) {
      if (!spec.values) {
        spec.values = given;
        return;
      }
      std::erase_if(*spec.values, [&](const SchemaJson* value) {
        return std::ranges::none_of(given, [&](const SchemaJson* other) { return *other == *value; });
      });
    };
    if (const SchemaJson* value = document_.find(schema, "const")) restrict_to({value});
    if (const SchemaJson* list = document_.find_array(schema, "enum")) {
      std::vector<const SchemaJson*> given;
      for (const SchemaJson& value : *list) given.push_back(&value);
      restrict_to(given);
    }
  }

  static void tighten(std::optional<NumberBound>& bound, const NumberBound& fresh, bool lower) {
    if (bound) {
      const auto a = bound->number->get<double>();
      const auto b = fresh.number->get<double>();
      const bool tighter = lower ? b > a : b < a;
      if (!tighter && !(a == b && !fresh.inclusive)) return;
    }
    bound = fresh;
  }

  void add_numbers(const SchemaJson& schema) {
    const auto add_side = [&](const char* plain, const char* exclusive, std::optional<NumberBound>& bound, bool lower) {
      const SchemaJson* edge = document_.find(schema, exclusive);
      // In draft 4 it says whether the other keyword's number belongs to the range.
      const bool excludes = edge != nullptr && edge->is_boolean() && edge->get<bool>();
      if (const SchemaJson* number = document_.find_number(schema, plain)) tighten(bound, {number, !excludes}, lower);
      if (edge == nullptr || edge->is_boolean()) return;
      tighten(bound, {document_.find_number(schema, exclusive), false}, lower);
    };
    add_side("minimum", "exclusiveMinimum", spec.least, true);
    add_side("maximum", "exclusiveMaximum", spec.most, false);
    if (const SchemaJson* of = document_.find_number(schema, "multipleOf")) {
      if (!(of->get<double>() > 0)) document_.fail_at(schema, "multipleOf", "must be above 0");
      spec.multiples.push_back(of);
    }
  }

  // What is wrong with a pattern is said with its place.
  void check_pattern(const SchemaJson& schema, const char* keyword, const std::string& pattern) const {
    try {
      (void)parse_regex_syntax(pattern, {});
    } catch (const Error& error) {
      document_.fail_at(schema, keyword, "cannot be used: {}", error.what());
    }
  }

  void add_strings(const SchemaJson& schema) {
    spec.min_length = std::max(spec.min_length, document_.count(schema, "minLength", 0));
    spec.max_length = std::min(spec.max_length, document_.count(schema, "maxLength", UINT32_MAX));
    if (const std::string* pattern = document_.find_string(schema, "pattern")) {
      check_pattern(schema, "pattern", *pattern);
      spec.patterns.push_back(*pattern);
    }
    if (const std::string* format = document_.find_string(schema, "format")) {
      const std::string* pattern = format_pattern(*format);
      if (pattern == nullptr) document_.fail_at(schema, "format", "\"{}\" is not supported", printable(*format));
      spec.formats.push_back(*pattern);
    }
  }

  void add_arrays(const SchemaJson& schema) {
    spec.min_items = std::max(spec.min_items, document_.count(schema, "minItems", 0));
    spec.max_items = std::min(spec.max_items, document_.count(schema, "maxItems", UINT32_MAX));
    ArrayPart part;
    part.prefix = document_.find_array(schema, "prefixItems");
    const SchemaJson* items = document_.find(schema, "items");
    if (items != nullptr && items->is_array()) {
      // As drafts before 2020 have it.
      if (part.prefix != nullptr) document_.fail_at(schema, "items", "must be a schema beside `prefixItems`");
      part.prefix = items;
      part.rest = document_.find(schema, "additionalItems");
    } else {
      part.rest = items;
    }
    if (part.prefix != nullptr || part.rest != nullptr) spec.arrays.push_back(part);
  }

  void add_objects(const SchemaJson& schema) {
    spec.min_properties = std::max(spec.min_properties, document_.count(schema, "minProperties", 0));
    spec.max_properties = std::min(spec.max_properties, document_.count(schema, "maxProperties", UINT32_MAX));
    if (const SchemaJson* names = document_.find_array(schema, "required")) {
      for (const SchemaJson& name : *names) {
        if (!name.is_string()) document_.fail_at(schema, "required", "must hold strings");
        const auto& text = name.get_ref<const std::string&>();
        if (required_.insert(text).second) spec.required.push_back(text);
      }
      spec.object_keyword = &schema;
    }
    const ObjectPart part = {.properties = document_.find_object(schema, "properties"),
                             .patterns = document_.find_object(schema, "patternProperties"),
                             .additional = document_.find(schema, "additionalProperties")};
    if (part.patterns != nullptr) {
      for (const auto& pattern : part.patterns->items()) check_pattern(schema, "patternProperties", pattern.key());
    }
    if (part.properties != nullptr || part.patterns != nullptr || part.additional != nullptr) {
      spec.objects.push_back(part);
      spec.object_keyword = &schema;
    }
    if (const SchemaJson* names = document_.find(schema, "propertyNames")) {
      spec.names.push_back(names);
      spec.object_keyword = &schema;
    }
  }

  const SchemaDocument& document_;
  std::set<std::string> required_;
};

}  // namespace

bool ValueSpec::requires_property(const std::string& name) const {
  return std::ranges::find(required, name) != required.end();
}

ValueSpec merge_schemas(const Schemas& schemas, const SchemaDocument& document) {
  Merger merger(document);
  for (const SchemaJson* schema : schemas) merger.add(*schema);
  merger.spec.schemas = schemas;
  return std::move(merger.spec);
}

uint32_t type_of(const SchemaJson& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  if (value.is_string()) return kString;
  if (!value.is_number_float()) return kInteger;
  const auto number = value.get<double>();
  return number == std::floor(number) ? kInteger : kFraction;
}

}  // namespace inferno::grammar
