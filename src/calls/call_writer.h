// Inside call_rules(): writes the rules, one file per kind of format.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "calls/call_rules.h"
#include "calls/free_text.h"
#include "grammar/json_text.h"

namespace inferno::calls {

class CallWriter {
 public:
  CallWriter(const CallForm& form, const grammar::Limits& limits, std::vector<std::string>& relaxed);

  [[nodiscard]] grammar::Rules run();

 private:
  using ExprId = grammar::ExprId;
  using RuleId = grammar::RuleId;

  // ---- answers (call_rules.cpp)
  [[nodiscard]] grammar::Machine answer();
  void add_thinking(std::vector<TextPhase>& phases) const;
  void add_marked(std::vector<TextPhase>& phases);
  void add_whole(std::vector<TextPhase>& phases);
  void add_harmony(std::vector<TextPhase>& phases);
  [[nodiscard]] ExprId required();

  // ---- calls whose arguments are JSON (call_rules.cpp)
  // What follows the opening marker, the closing one included.
  [[nodiscard]] ExprId after_marker();
  [[nodiscard]] ExprId json_call(const Tool& tool);
  [[nodiscard]] ExprId after_name(const Tool& tool);  // of such an object
  [[nodiscard]] ExprId named_call(const Tool& tool);
  [[nodiscard]] ExprId harmony_call(const Tool& tool);
  [[nodiscard]] ExprId arguments(const Tool& tool);
  [[nodiscard]] grammar::Rules schema_rules(const Tool& tool);

  // ---- tags, Python, Gemma (literal_rules.cpp)
  struct Property {
    std::string name;
    const nlohmann::ordered_json* schema;
    bool required;
  };
  [[nodiscard]] std::vector<Property> properties_of(const Tool& tool) const;
  [[nodiscard]] ExprId tagged_call(const Tool& tool);
  [[nodiscard]] ExprId tagged_value(const Tool& tool, const Property& property);
  [[nodiscard]] ExprId literal_call(const Tool& tool);
  [[nodiscard]] ExprId literal_members(const Tool& tool, char equals);
  [[nodiscard]] ExprId literal_value(const Tool& tool, const Property& property);
  [[nodiscard]] ExprId literal_string();
  [[nodiscard]] ExprId any_literal();
  [[nodiscard]] ExprId value_by_schema(const Tool& tool, const Property& property);
  // Any text up to and with the marker.
  [[nodiscard]] ExprId text_until(std::string_view marker);

  // ---- parts
  [[nodiscard]] ExprId text(std::string_view literal) { return pool_.literal(literal); }
  // As a token of its own, or spelt out.
  [[nodiscard]] ExprId marker(std::string_view marker);
  template <typename Make>
  [[nodiscard]] ExprId any_tool(Make make) {
    std::vector<ExprId> ways;
    for (const Tool* tool : tools_) ways.push_back(make(*tool));
    return pool_.choice(ways);
  }
  // Once, or as often as calls may be made at once.
  [[nodiscard]] ExprId calls(ExprId call, ExprId between);
  [[nodiscard]] bool is_python() const { return spec_.syntax == Syntax::pythonic; }

  const CallForm& form_;
  const grammar::Limits& limits_;
  const FormatSpec& spec_;
  std::vector<std::string>& relaxed_;
  std::vector<const Tool*> tools_;
  grammar::Rules rules_;
  grammar::ExprPool& pool_;
  grammar::JsonText json_;
  std::map<const Tool*, RuleId> arguments_;
  std::map<std::string, RuleId> until_;
  std::optional<RuleId> any_literal_;
};

}  // namespace inferno::calls
