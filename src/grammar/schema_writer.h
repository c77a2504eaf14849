// Inside the front end for JSON schemas: writes the rules, one for every set of schemas that hold at once.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "grammar/json_text.h"
#include "grammar/nfa.h"
#include "grammar/number_text.h"
#include "grammar/rules.h"
#include "grammar/schema_value.h"

namespace inferno::grammar {

class SchemaWriter {
 public:
  SchemaWriter(SchemaDocument& document, const Limits& limits)
      : document_(document), limits_(limits), rules_(limits), pool_(rules_.pool), text_(rules_) {}

  [[nodiscard]] Rules run();

 private:
  // ---- values (json_schema.cpp)
  // The value that fits all these schemas. Its rule is written later: schemas may be recursive and deep.
  [[nodiscard]] ExprId value(Schemas schemas);
  [[nodiscard]] ExprId write(const Schemas& schemas);
  [[nodiscard]] ExprId write(const ValueSpec& spec);
  template <typename Make>
  [[nodiscard]] ExprId located(const ValueSpec& spec, std::initializer_list<const char*> keywords, Make make);
  [[nodiscard]] ExprId fixed_values(const ValueSpec& spec);
  [[nodiscard]] ExprId number(const ValueSpec& spec);
  [[nodiscard]] Machine to_machine(ExprId expr) const;

  // ---- strings (schema_strings.cpp)
  [[nodiscard]] ExprId string(const ValueSpec& spec);
  // Of what is between the quotes, in its plain form; must be deterministic.
  [[nodiscard]] Machine string_machine(const ValueSpec& spec);
  [[nodiscard]] const Machine& pattern_machine(const std::string& pattern, bool whole);
  [[nodiscard]] Machine counting_machine(uint32_t least, uint32_t most, bool quoted);
  // With quotes.
  [[nodiscard]] ExprId counted_string(uint32_t least, uint32_t most);
  [[nodiscard]] ExprId chars_in_blocks(uint32_t least, uint32_t most);

  // ---- arrays and objects (schema_containers.cpp)
  struct Property {
    std::string name;
    Schemas schemas;
    bool required = false;
  };
  // Names that are not listed: a machine of them (empty: any), and the schemas of their values.
  struct OtherNames {
    std::optional<Machine> names;
    Schemas schemas;
  };
  [[nodiscard]] ExprId array(const ValueSpec& spec);
  [[nodiscard]] ExprId object(const ValueSpec& spec);
  // Empty: a required one cannot be there.
  [[nodiscard]] std::optional<std::vector<Property>> properties_of(const ValueSpec& spec);
  [[nodiscard]] std::vector<OtherNames> other_names(const ValueSpec& spec, const std::vector<Property>& listed);
  [[nodiscard]] bool name_fits(const std::string& name, const ValueSpec& spec);
  [[nodiscard]] ExprId object_rule(const ValueSpec& spec, const std::vector<Property>& listed,
                                   const std::vector<OtherNames>& others);

  // ---- which values fit what (schema_disjoint.cpp)
  // Of scalar values; arrays and objects fit when their type does.
  [[nodiscard]] bool value_fits(const SchemaJson& value, const ValueSpec& spec);
  [[nodiscard]] bool are_disjoint(const ValueSpec& a, const ValueSpec& b, int depth);
  [[nodiscard]] bool objects_are_disjoint(const ValueSpec& a, const ValueSpec& b, int depth);
  [[nodiscard]] bool schemas_are_disjoint(const Schemas& a, const Schemas& b, int depth);
  [[nodiscard]] std::optional<Schemas> schemas_of_property(const std::string& name, const ValueSpec& spec);
  void check_one_of(const std::vector<Alternative>& alternatives, const std::vector<ValueSpec>& specs);

  SchemaDocument& document_;
  const Limits& limits_;
  Rules rules_;
  ExprPool& pool_;
  JsonText text_;
  std::map<Schemas, RuleId> known_;
  std::deque<std::pair<Schemas, RuleId>> open_;
  std::map<std::string, Machine> patterns_;
  std::map<std::pair<uint32_t, uint32_t>, ExprId> counted_strings_;  // by their lengths
  std::set<std::string> forbidden_;  // names of the object being written that are listed and cannot be there
};

// Whether a schema says nothing, or that nothing fits.
[[nodiscard]] bool takes_anything(const SchemaJson& schema);
[[nodiscard]] bool takes_nothing(const Schemas& schemas);

}  // namespace inferno::grammar
