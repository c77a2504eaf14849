#include "grammar/json_schema.h"

#include <algorithm>
#include <iterator>

#include "grammar/listed_values.h"
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
  std::erase_if(schemas, [](const SchemaJson* s) { return takes_anything(*s); });
  if (schemas.empty()) return text_.any_value();
  if (takes_nothing(schemas)) return pool_.never();
  // The same schemas in another order are the same value; the order in which they come first is that of its properties.
  Schemas sorted = schemas;
  std::ranges::sort(sorted);
  sorted.erase(std::ranges::unique(sorted).begin(), sorted.end());
  const auto known = known_.find(sorted);
  if (known != known_.end()) return pool_.call(known->second);
  const RuleId rule = rules_.declare("schema");
  known_.emplace(std::move(sorted), rule);
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
  const bool fractions = (spec.types & kFraction) != 0;
  std::vector<std::string> texts;
  for (const SchemaJson* value : *spec.values) {
    if (value_fits(*value, spec)) std::ranges::move(listed_texts(*value, fractions), std::back_inserter(texts));
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
  const auto bound_of = [](const std::optional<NumberBound>& bound) -> std::optional<DecimalBound> {
    if (!bound) return std::nullopt;
    return DecimalBound{.at = decimal_of(*bound->number), .inclusive = bound->inclusive};
  };
  const std::optional<DecimalBound> least = bound_of(spec.least), most = bound_of(spec.most);
  // Numbers with an exponent that are within all bounds are in each of the machines, and so in their intersection.
  const bool exponents = fractions && spec.multiples.empty();
  const ExprId scientific = exponents ? scientific_within(pool_, least, most) : pool_.never();
  const auto machine_of = [&](ExprId decimals) { return to_machine(pool_.choice({decimals, scientific})); };
  std::vector<Machine> machines;
  if (least) machines.push_back(machine_of(decimals_above(pool_, kind, *least)));
  if (most) machines.push_back(machine_of(decimals_below(pool_, kind, *most)));
  for (const SchemaJson* of : spec.multiples) machines.push_back(multiples_machine(decimal_of(*of), limits_));
  // Multiples are of any kind.
  if (!spec.multiples.empty()) machines.push_back(machine_of(all_decimals(pool_, kind)));
  Machine machine = std::move(machines.front());
  for (const Machine& other : std::span(machines).subspan(1)) machine = intersection(machine, other, limits_);
  return pool_.call(rules_.define("number", std::move(machine)));
}

}  // namespace inferno::grammar
