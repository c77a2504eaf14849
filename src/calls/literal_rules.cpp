// Calls as tags, and as literals of Python and of Gemma: names, what is required, and values that are no free text.
#include <algorithm>

#include "base/error.h"
#include "calls/call_writer.h"
#include "grammar/json_schema.h"

namespace inferno::calls {
namespace {

using grammar::ExprId;
using nlohmann::ordered_json;

bool has_type(const ordered_json& schema, std::string_view name) {
  if (!schema.is_object()) return false;
  const auto type = schema.find("type");
  return type != schema.end() && *type == name;
}

// Values that are written without being text: no string is among them.
bool has_only_types(const ordered_json& schema, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return has_type(schema, name); });
}

// The strings it is one of; none: it may be any.
std::vector<std::string> choices_of(const ordered_json& schema) {
  std::vector<std::string> choices;
  const auto add = [&](const ordered_json& value) {
    if (value.is_string()) choices.push_back(value.get<std::string>());
  };
  const auto listed = schema.find("enum");
  if (listed != schema.end() && listed->is_array()) std::ranges::for_each(*listed, add);
  if (const auto only = schema.find("const"); only != schema.end()) add(*only);
  return choices;
}

// References of a schema that becomes part of another one, at `place` (a JSON pointer).
void move_references(ordered_json& schema, const std::string& place) {
  if (schema.is_object()) {
    const auto reference = schema.find("$ref");
    if (reference != schema.end() && reference->is_string()) {
      const auto& target = reference->get_ref<const std::string&>();
      if (target.starts_with('#')) *reference = "#" + place + target.substr(1);
    }
  }
  if (!schema.is_structured()) return;
  for (ordered_json& part : schema) move_references(part, place);
}

}  // namespace

std::vector<CallWriter::Property> CallWriter::properties_of(const Tool& tool) const {
  std::vector<Property> properties;
  const auto listed = tool.parameters.find("properties");
  if (listed == tool.parameters.end() || !listed->is_object()) return properties;
  const ordered_json required = tool.parameters.value("required", ordered_json::array());
  for (const auto& [name, schema] : listed->items()) {
    const bool is_required = required.is_array() && std::ranges::count(required, ordered_json(name)) > 0;
    properties.push_back({.name = name, .schema = &schema, .required = is_required});
  }
  return properties;
}

ExprId CallWriter::value_by_schema(const Tool& tool, const Property& property) {
  // The property's schema may refer to others of the tool.
  ordered_json whole = *property.schema;
  move_references(whole, "/x-tool");
  whole["x-tool"] = tool.parameters;
  move_references(whole["x-tool"], "/x-tool");
  try {
    if (form_.any_arguments) fail_usage("schemas do not count");
    return pool_.call(rules_.add(
        grammar::parse_json_schema(whole.dump(-1, ' ', false, ordered_json::error_handler_t::replace), limits_)));
  } catch (const Error& error) {
    const std::string message =
        fmt::format("the argument \"{}\" of \"{}\": {}", property.name, tool.name, error.what());
    if (tool.strict) fail_usage("{}", message);
    if (!form_.any_arguments) relaxed_.push_back(message);
  }
  return json_.any_value();
}

ExprId CallWriter::text_until(std::string_view marker) {
  auto [found, is_new] = until_.try_emplace(std::string(marker), 0);
  if (is_new) {
    const std::vector<TextPhase> phases = {{.exits = {{.text = std::string(marker), .phase = 1}}, .may_end = false},
                                           {.ends = true}};
    found->second = rules_.define("text", free_text(phases));
  }
  return pool_.call(found->second);
}

// ---- tags

ExprId CallWriter::tagged_value(const Tool& tool, const Property& property) {
  const ordered_json& schema = *property.schema;
  const std::string_view close = spec_.tags.value_close;
  const auto enclosed = [&](ExprId value) {
    return pool_.sequence({json_.space(), value, json_.space(), text(close)});
  };
  if (has_type(schema, "string")) {
    std::vector<ExprId> ways;
    for (const std::string& choice : choices_of(schema)) ways.push_back(text(choice));
    return ways.empty() ? text_until(close) : enclosed(pool_.choice(ways));
  }
  const bool is_text = !has_only_types(schema, {"integer", "number", "boolean", "array", "object", "null"});
  return is_text ? text_until(close) : enclosed(value_by_schema(tool, property));
}

ExprId CallWriter::tagged_call(const Tool& tool) {
  const TagNames& tags = spec_.tags;
  std::vector<ExprId> parts = {text(tags.call_open), text(tool.name), text(tags.name_end)};
  for (const Property& property : properties_of(tool)) {
    std::vector<ExprId> argument = {json_.space(), text(tags.key_open), text(property.name), text(tags.key_end)};
    if (!tags.value_open.empty()) argument.insert(argument.end(), {json_.space(), text(tags.value_open)});
    argument.push_back(tagged_value(tool, property));
    const ExprId whole = pool_.sequence(argument);
    parts.push_back(property.required ? whole : pool_.optional(whole));
  }
  if (!tags.call_close.empty()) parts.insert(parts.end(), {json_.space(), text(tags.call_close)});
  return pool_.sequence(parts);
}

// ---- literals

ExprId CallWriter::literal_string() {
  if (!spec_.quote.empty()) return pool_.sequence({marker(spec_.quote), text_until(spec_.quote)});
  const auto in_quotes = [&](char quote) {
    const auto q = static_cast<uint32_t>(static_cast<unsigned char>(quote));
    const grammar::CharSet plain = grammar::CharSet{{0x20, grammar::CharSet::kLast}}.without({{q, q}, {'\\', '\\'}});
    const ExprId escape = pool_.sequence(
        {text("\\"), pool_.chars({{'n', 'n'}, {'t', 't'}, {'r', 'r'}, {'\\', '\\'}, {'\'', '\''}, {'"', '"'}})});
    const ExprId inside = pool_.repeat(pool_.choice({pool_.chars(plain), escape}), 0, grammar::kUnlimited);
    return pool_.sequence({text({&quote, 1}), inside, text({&quote, 1})});
  };
  return pool_.choice({in_quotes('"'), in_quotes('\'')});
}

ExprId CallWriter::any_literal() {
  if (any_literal_) return pool_.call(*any_literal_);
  any_literal_ = rules_.declare("literal");
  const ExprId value = pool_.call(*any_literal_);
  const ExprId comma = pool_.choice({text(","), text(", ")});
  const auto list_of = [&](std::string_view open, ExprId item, std::string_view close) {
    const ExprId more = pool_.repeat(pool_.sequence({comma, item}), 0, grammar::kUnlimited);
    return pool_.sequence({text(open), pool_.optional(pool_.sequence({item, more})), text(close)});
  };
  const ExprId word = pool_.repeat(pool_.chars({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}), 1, 64);
  const ExprId key = is_python() ? literal_string() : pool_.choice({word, literal_string()});
  const ExprId member = pool_.sequence({key, pool_.choice({text(":"), text(": ")}), value});
  const ExprId names = is_python() ? pool_.choice({text("True"), text("False"), text("None")})
                                   : pool_.choice({text("true"), text("false"), text("null")});
  const ExprId body =
      pool_.choice({literal_string(), json_.any_number(), names, list_of("[", value, "]"), list_of("{", member, "}")});
  rules_.rules[*any_literal_].body = body;
  return value;
}

ExprId CallWriter::literal_value(const Tool& tool, const Property& property) {
  const ordered_json& schema = *property.schema;
  if (has_type(schema, "string")) {
    std::vector<ExprId> ways;
    for (const std::string& choice : choices_of(schema)) {
      if (is_python()) {
        ways.push_back(text(ordered_json(choice).dump()));
        if (choice.find_first_of("'\\\n") == std::string::npos) ways.push_back(text("'" + choice + "'"));
      } else {
        ways.push_back(pool_.sequence({marker(spec_.quote), text(choice), marker(spec_.quote)}));
      }
    }
    return ways.empty() ? literal_string() : pool_.choice(ways);
  }
  if (is_python() && has_type(schema, "boolean")) return pool_.choice({text("True"), text("False")});
  if (has_only_types(schema, {"integer", "number", "boolean"})) return value_by_schema(tool, property);
  return any_literal();
}

// Of the properties from each on, with and without one before: rules, so that what is common is written once.
ExprId CallWriter::literal_members(const Tool& tool, char equals) {
  const std::vector<Property> properties = properties_of(tool);
  const ExprId comma = pool_.choice({text(", "), text(",")});
  ExprId first = pool_.empty();
  ExprId later = pool_.empty();
  for (size_t i = properties.size(); i-- > 0;) {
    const Property& property = properties[i];
    const ExprId rest = pool_.call(rules_.define("members", later));
    const ExprId member = pool_.sequence({text(property.name + equals), literal_value(tool, property), rest});
    const ExprId next = pool_.sequence({comma, member});
    first = property.required ? member : pool_.choice({member, first});
    later = property.required ? next : pool_.choice({next, rest});
  }
  return first;
}

// f(a=1), call:f{a:1}
ExprId CallWriter::literal_call(const Tool& tool) {
  if (is_python()) return pool_.sequence({text(tool.name), text("("), literal_members(tool, '='), text(")")});
  return pool_.sequence({text("call:"), text(tool.name), text("{"), literal_members(tool, ':'), text("}")});
}

}  // namespace inferno::calls
