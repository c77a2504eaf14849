#include "cli/constraint_flags.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace inferno::cli {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{8} << 20;

}  // namespace

void ConstraintFlags::add_to(CLI::App& command) {
  CLI::Option* schema =
      command.add_option("--json-schema", json_schema, "make JSON that fits the JSON schema in this file");
  CLI::Option* rules = command.add_option("--grammar", grammar, "make text that fits the grammar (GBNF) in this file");
  CLI::Option* pattern = command.add_option("--regex", regex, "make text that fits this regular expression");
  schema->excludes(rules)->excludes(pattern);
  rules->excludes(pattern);
}

Constraint ConstraintFlags::read() const {
  Constraint constraint;
  if (!json_schema.empty()) constraint.json_schema = read_text(json_schema, kMaxBytes);
  if (!grammar.empty()) constraint.grammar = read_text(grammar, kMaxBytes);
  constraint.regex = regex;
  return constraint;
}

Constraint constraint_of(const nlohmann::ordered_json& line, const Constraint& common) {
  Constraint constraint;
  const auto text = [&](const char* key, std::string& value) {
    if (!line.contains(key)) return;
    if (!line[key].is_string()) fail_usage("\"{}\" is not a text", key);
    value = line[key].get<std::string>();
  };
  if (line.contains("json_schema")) constraint.json_schema = line["json_schema"].dump();
  text("grammar", constraint.grammar);
  text("regex", constraint.regex);
  if (line.contains("choice")) {
    if (!line["choice"].is_array() || line["choice"].empty()) fail_usage("\"choice\" is not an array of texts");
    for (const auto& one : line["choice"]) {
      if (!one.is_string()) fail_usage("\"choice\" is not an array of texts");
      constraint.choice.push_back(one.get<std::string>());
    }
  }
  return constraint.empty() ? common : constraint;
}

}  // namespace inferno::cli
