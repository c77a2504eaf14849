// What one alternative of a schema says about a value: the keywords of all its schemas, merged.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "grammar/schema_alternatives.h"

namespace inferno::grammar {

enum TypeBits : uint32_t {
  kNull = 1,
  kBoolean = 2,
  kObject = 4,
  kArray = 8,
  kString = 16,
  kInteger = 32,
  kFraction = 64,  // a number that is not an integer
  kAnyType = 127,
};

// Nothing is as long: a limit of lengths that is not below it is none.
inline constexpr uint32_t kEndless = 1U << 31;

struct NumberBound {
  const SchemaJson* number;
  bool inclusive;
};

// Keywords that depend on each other within one schema; several such parts hold at once.
struct ObjectPart {
  const SchemaJson* properties = nullptr;  // null: none
  const SchemaJson* patterns = nullptr;
  const SchemaJson* additional = nullptr;  // null: anything
};
struct ArrayPart {
  const SchemaJson* prefix = nullptr;  // an array of schemas; null: none
  const SchemaJson* rest = nullptr;    // null: anything
};

struct ValueSpec {
  Schemas schemas;  // of which it is made
  uint32_t types = kAnyType;
  std::optional<std::vector<const SchemaJson*>> values;  // enum and const

  std::optional<NumberBound> least, most;
  std::vector<const SchemaJson*> multiples;

  uint32_t min_length = 0, max_length = UINT32_MAX;
  std::vector<std::string> patterns;  // found in the string
  std::vector<std::string> formats;   // patterns of the whole string

  uint32_t min_items = 0, max_items = UINT32_MAX;
  std::vector<ArrayPart> arrays;

  uint32_t min_properties = 0, max_properties = UINT32_MAX;
  std::vector<ObjectPart> objects;
  std::vector<std::string> required;           // in the order they are named
  std::vector<const SchemaJson*> names;        // schemas of the names of properties
  const SchemaJson* object_keyword = nullptr;  // a schema with keywords of objects, for messages

  [[nodiscard]] bool requires_property(const std::string& name) const;
};

[[nodiscard]] ValueSpec merge_schemas(const Schemas& schemas, const SchemaDocument& document);

// The bit of a value's type; 1.0 is an integer.
[[nodiscard]] uint32_t type_of(const SchemaJson& value);

}  // namespace inferno::grammar
