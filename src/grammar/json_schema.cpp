#include "grammar/json_schema.h"

#include <algorithm>

#include "grammar/schema_writer.h"

namespace inferno::grammar {

bool takes_anything(const SchemaJson& schema) {
  return (schema.is_boolean() && schema.get<bool>()) || (schema.is_object() && schema.empty());
}

bool takes_nothing(const Schemas& schemas) {
  return std::ranges::any_of(schemas, [](const SchemaJson* s) { return s->is_boolean() && !s->get<bool>(); });
}

Rules parse_json_schema(std::string_view text, const Limits& limits) {
  SchemaDocument document(text, limits);
  return SchemaWriter(document, limits).run();
}

Rules SchemaWriter::run() {
  const ExprId root = value({&document_.root()});
  while (!open_.empty()) {
    const auto [schemas, rule] = std::move(open_.front());
    open_.pop_front();
    const ExprId body = write(schemas);
    rules_.rules[rule].body = body;
  }
  rules_.start = rules_.define("root", root);
  return std::move(rules_);
}

ExprId SchemaWriter::value(Schemas schemas) {
  std::ranges::sort(schemas);
  schemas.erase(std::ranges::unique(schemas).begin(), schemas.end());
  std::erase_if(schemas, [](const SchemaJson* s) { return takes_anything(*s); });
  if (schemas.empty()) return text_.any_value();
  if (takes_nothing(schemas)) return pool_.never();
  const auto known = known_.find(schemas);
  if (known != known_.end()) return pool_.call(known->second);
  const RuleId rule = rules_.declare("schema");
  known_.emplace(schemas, rule);
  open_.emplace_back(std::move(schemas), rule);
  return pool_.call(rule);
}

ExprId SchemaWriter::write(const Schemas& schemas) {
  const std::vector<Alternative> alternatives = alternatives_of(schemas, document_, limits_);
  std::vector<ValueSpec> specs;
  for (const Alternative& alternative : alternatives) specs.push_back(merge_schemas(alternative.schemas, document_));
  check_one_of(alternatives, specs);
  std::vector<ExprId> ways;
  for (const ValueSpec& spec : specs) ways.push_back(write(spec));
  return pool_.choice(ways);
}

// What is too large or complex for a machine is said with the first of the keywords that are there, and its place.
template <typename Make>
ExprId SchemaWriter::located(const ValueSpec& spec, std::initializer_list<const char*> keywords, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(kSchemaError)) throw;
    for (const char* keyword : keywords) {
      for (const SchemaJson* schema : spec.schemas) {
        if (schema->contains(keyword)) document_.fail_at(*schema, keyword, "cannot be enforced: {}", error.what());
      }
    }
    throw;
  }
}

ExprId SchemaWriter::write(const ValueSpec& spec) {
  if (spec.values) {
    return located(spec, {"enum", "const"}, [&] { return fixed_values(spec); });
  }
  std::vector<ExprId> ways;
  if ((spec.types & kObject) != 0) {
    const auto keywords = {"maxProperties", "minProperties", "patternProperties",   "propertyNames",
                           "properties",    "required",      "additionalProperties"};
    ways.push_back(located(spec, keywords, [&] { return object(spec); }));
  }
  if ((spec.types & kArray) != 0) {
    const auto keywords = {"minItems", "maxItems", "prefixItems", "items"};
    ways.push_back(located(spec, keywords, [&] { return array(spec); }));
  }
  if ((spec.types & kString) != 0) {
    const auto keywords = {"pattern", "format", "minLength", "maxLength"};
    ways.push_back(located(spec, keywords, [&] { return string(spec); }));
  }
  if ((spec.types & kInteger) != 0) {
    const auto keywords = {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "type"};
    ways.push_back(located(spec, keywords, [&] { return number(spec); }));
  }
  if ((spec.types & kBoolean) != 0) ways.push_back(text_.boolean());
  if ((spec.types & kNull) != 0) ways.push_back(pool_.literal("null"));
  return pool_.choice(ways);
}

ExprId SchemaWriter::fixed_values(const ValueSpec& spec) {
  std::vector<std::string> texts;
  for (const SchemaJson* value : *spec.values) {
    if (value_fits(*value, spec)) texts.push_back(value->dump());
  }
  return pool_.call(rules_.define("values", words_machine(std::move(texts), limits_)));
}

Machine SchemaWriter::to_machine(ExprId expr) const {
  Nfa nfa(pool_, limits_);
  const uint32_t begin = nfa.build(expr, Nfa::kFinal);
  Machine machine = nfa.machine(begin);
  if (!machine.is_deterministic()) fail_usage("it is too complex");
  return machine;
}

ExprId SchemaWriter::number(const ValueSpec& spec) {
  const bool fractions = (spec.types & kFraction) != 0;
  const NumberKind kind = fractions ? NumberKind::number : NumberKind::integer;
  if (!spec.least && !spec.most && spec.multiples.empty()) {
    return fractions ? text_.any_number() : text_.any_integer();
  }
  Machine machine = to_machine(all_decimals(pool_, kind));
  const auto restrict_to = [&](const Machine& other) { machine = intersection(machine, other, limits_); };
  if (spec.least) {
    const Decimal bound = decimal_of(*spec.least->number);
    restrict_to(to_machine(decimals_above(pool_, kind, bound, spec.least->inclusive)));
  }
  if (spec.most) {
    const Decimal bound = decimal_of(*spec.most->number);
    restrict_to(to_machine(decimals_below(pool_, kind, bound, spec.most->inclusive)));
  }
  for (const SchemaJson* of : spec.multiples) restrict_to(multiples_machine(decimal_of(*of), limits_));
  return pool_.call(rules_.define("number", std::move(machine)));
}

}  // namespace inferno::grammar
