#include "calls/call_rules.h"

#include <fmt/core.h>

#include "base/error.h"
#include "calls/call_writer.h"
#include "grammar/json_schema.h"
#include "grammar/token_trie.h"

namespace inferno::calls {
namespace {

using grammar::ExprId;
using nlohmann::ordered_json;

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kRecipient = "to=functions.";
// How Llama begins a call.
constexpr std::string_view kHeads[] = {"{\"name\": \"", "{\"name\":\"", "{ \"name\": \"",
                                       "{\"type\": \"function\", \"name\": \""};

bool has_json_arguments(Syntax syntax) {
  return syntax != Syntax::tags && syntax != Syntax::pythonic && syntax != Syntax::gemma;
}

std::string in_quotes(const std::string& name) {
  return ordered_json(name).dump();
}

}  // namespace

std::string CallForm::key() const {
  std::string key = fmt::format("{} {} {} {} {} {} {}", static_cast<int>(format), required, name, parallel, begins_in,
                                any_arguments, thinking.size());
  for (const ThinkingMarkers& markers : thinking) key += fmt::format(" {} {}", markers.open, markers.close);
  for (const Tool& tool : *tools) key += fmt::format("\n{} {} {}", tool.name, tool.strict, tool.parameters.dump());
  return key;
}

Format required_format(Format format) {
  return has_json_arguments(spec_of(format).syntax) ? format : Format::llama_json;
}

grammar::Rules call_rules(const CallForm& form, const grammar::Limits& limits, std::vector<std::string>& relaxed) {
  return CallWriter(form, limits, relaxed).run();
}

CallWriter::CallWriter(const CallForm& form, const grammar::Limits& limits, std::vector<std::string>& relaxed)
    : form_(form),
      limits_(limits),
      spec_(spec_of(form.format)),
      relaxed_(relaxed),
      rules_(limits),
      pool_(rules_.pool),
      json_(rules_) {
  for (const Tool& tool : *form.tools) {
    if (form.name.empty() || tool.name == form.name) tools_.push_back(&tool);
  }
}

grammar::Rules CallWriter::run() {
  rules_.start = form_.required ? rules_.define("root", required()) : rules_.define("root", answer());
  return std::move(rules_);
}

// ---- answers

// Phases: 0 the beginning, then one per block of thinking, then the answer's own.
grammar::Machine CallWriter::answer() {
  std::vector<TextPhase> phases;
  add_thinking(phases);
  if (spec_.syntax == Syntax::harmony) {
    add_harmony(phases);
  } else if (spec_.syntax == Syntax::bare_objects || spec_.open.empty()) {
    add_whole(phases);
  } else {
    add_marked(phases);
  }
  return free_text(phases, static_cast<size_t>(form_.begins_in) + 1);
}

void CallWriter::add_thinking(std::vector<TextPhase>& phases) const {
  const size_t content = form_.thinking.size() + 1;
  phases.push_back({.at_beginning = true, .otherwise = content});
  for (const auto& [open, close] : form_.thinking) {
    phases.front().exits.push_back({.text = std::string(open), .phase = phases.size()});
    phases.push_back({.exits = {{.text = std::string(close), .phase = content}}});
  }
}

void CallWriter::add_marked(std::vector<TextPhase>& phases) {
  const size_t content = phases.size();
  const RuleId call = rules_.define("call", after_marker());
  const std::string open(spec_.open);
  phases.push_back({.exits = {{.text = open, .phase = form_.parallel ? content : content + 1, .call = call}}});
  phases.push_back({.exits = {{.text = open, .phase = kNoPhase}}});
}

// Calls are all of the answer, or it is text.
void CallWriter::add_whole(std::vector<TextPhase>& phases) {
  const size_t content = phases.size();
  TextPhase begin{.at_beginning = true, .otherwise = content + 1};
  const bool bare = spec_.syntax == Syntax::bare_objects;
  const ExprId another = any_tool([&](const Tool& tool) { return bare ? json_call(tool) : literal_call(tool); });
  const ExprId between = bare ? pool_.choice({text("; "), text(", "), text(";"), text("\n")}) : text(", ");
  const ExprId more =
      form_.parallel ? pool_.repeat(pool_.sequence({between, another}), 0, grammar::kUnlimited) : pool_.empty();
  for (const Tool* tool : tools_) {
    const ExprId rest = bare ? pool_.sequence({after_name(*tool), more})
                             : pool_.sequence({literal_members(*tool, '='), text(")"), more, text("]")});
    const RuleId call = rules_.define("call", rest);
    const auto add = [&](const std::string& head) {
      begin.exits.push_back({.text = head, .phase = content + 2, .call = call});
    };
    if (!bare) add("[" + tool->name + "(");
    for (const std::string_view head : kHeads) {
      if (!bare) break;
      const std::string opening = fmt::format("{}{}\"", head, tool->name);
      add(opening);
      add(std::string(spec_.open) + opening);
    }
  }
  phases.push_back(std::move(begin));
  phases.push_back({});
  phases.push_back({.ends = true});
}

void CallWriter::add_harmony(std::vector<TextPhase>& phases) {
  const size_t header = phases.size();
  const RuleId call = rules_.define("call", any_tool([&](const Tool& tool) { return harmony_call(tool); }));
  const auto add = [&](size_t first, bool may_call) {
    const size_t body = first + 1;
    const size_t after = first + 2;
    // The last message before the header was ended by <|start|>, or by <|channel|> where that is left out.
    phases.push_back(
        {.exits = {{.text = std::string(kMessage), .phase = body},
                   {.text = std::string(kRecipient), .phase = may_call ? after : kNoPhase, .call = call}}});
    phases.push_back({.exits = {{.text = "<|start|>", .phase = first}, {.text = "<|channel|>", .phase = first}}});
    const size_t next = form_.parallel ? first : header + 3;
    phases.push_back({.exits = {{.text = "<|start|>", .phase = next},
                                {.text = "<|end|>", .phase = next + 1},
                                {.text = "<|call|>", .phase = next + 1}},
                      .at_beginning = true,
                      .otherwise = kNoPhase});
  };
  add(header, true);
  add(header + 3, false);
}

ExprId CallWriter::required() {
  if (spec_.syntax == Syntax::bare_objects) {
    return calls(any_tool([&](const Tool& tool) { return json_call(tool); }), text("; "));
  }
  if (spec_.syntax == Syntax::harmony) {
    const ExprId call = any_tool([&](const Tool& tool) { return harmony_call(tool); });
    const ExprId open = pool_.sequence({marker("<|channel|>"), text("commentary "), text(kRecipient), call});
    const ExprId between = pool_.sequence({marker("<|end|>"), marker("<|start|>"), text("assistant")});
    return calls(open, between);
  }
  const ExprId call = pool_.sequence({marker(spec_.open), after_marker()});
  const ExprId all = spec_.syntax == Syntax::list ? call : calls(call, json_.space());
  if (spec_.group_open.empty()) return all;
  return pool_.sequence({marker(spec_.group_open), all, marker(spec_.group_close)});
}

// ---- calls

ExprId CallWriter::after_marker() {
  if (spec_.syntax == Syntax::tags) {
    const ExprId call = any_tool([&](const Tool& tool) { return tagged_call(tool); });
    // What is around several calls may hold several; GLM's is around one.
    const ExprId all = spec_.tags.call_open.empty() ? call : calls(call, json_.space());
    return pool_.sequence({json_.space(), all, json_.space(), marker(spec_.close)});
  }
  if (spec_.syntax == Syntax::pythonic) {
    const ExprId call = any_tool([&](const Tool& tool) { return literal_call(tool); });
    return pool_.sequence({text("["), calls(call, text(", ")), text("]"), marker(spec_.close)});
  }
  if (spec_.syntax == Syntax::gemma) {
    return pool_.sequence({any_tool([&](const Tool& tool) { return literal_call(tool); }), marker(spec_.close)});
  }
  if (spec_.syntax == Syntax::named) return any_tool([&](const Tool& tool) { return named_call(tool); });
  const ExprId call = any_tool([&](const Tool& tool) { return json_call(tool); });
  if (spec_.syntax == Syntax::object) {
    return pool_.sequence({json_.space(), call, json_.space(), marker(spec_.close)});
  }
  const ExprId list =
      pool_.sequence({json_.space(), text("["), json_.space(), calls(call, json_.comma()), json_.space(), text("]")});
  return spec_.close.empty() ? list : pool_.sequence({list, pool_.optional(marker(spec_.close))});
}

ExprId CallWriter::json_call(const Tool& tool) {
  return pool_.sequence(
      {text("{"), json_.space(), text("\"name\""), json_.colon(), text(in_quotes(tool.name)), after_name(tool)});
}

ExprId CallWriter::after_name(const Tool& tool) {
  const std::string_view key = spec_.syntax == Syntax::bare_objects ? "\"parameters\"" : "\"arguments\"";
  ExprId end = json_.space();
  if (spec_.format == Format::mistral_list) {
    const grammar::CharSet digits = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
    const ExprId id = pool_.repeat(pool_.chars(digits), 9, 9);
    end = pool_.sequence(
        {pool_.optional(pool_.sequence({json_.comma(), text("\"id\""), json_.colon(), text("\""), id, text("\"")})),
         end});
  }
  return pool_.sequence({json_.comma(), text(key), json_.colon(), arguments(tool), end, text("}")});
}

ExprId CallWriter::named_call(const Tool& tool) {
  if (spec_.format == Format::deepseek_json) {
    return pool_.sequence({text("function"), marker(spec_.name_end), text(tool.name), text("\n```json\n"),
                           arguments(tool), text("\n```"), marker(spec_.close)});
  }
  if (!spec_.close.empty()) {
    return pool_.sequence({text(tool.name), marker(spec_.name_end), arguments(tool), marker(spec_.close)});
  }
  const grammar::CharSet digits = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
  const ExprId id = pool_.sequence({marker("[CALL_ID]"), pool_.repeat(pool_.chars(digits), 9, 9)});
  return pool_.sequence({text(tool.name), pool_.optional(id), marker(spec_.name_end), arguments(tool)});
}

ExprId CallWriter::harmony_call(const Tool& tool) {
  const ExprId channel = pool_.sequence({marker("<|channel|>"), text("commentary")});
  const ExprId type =
      pool_.sequence({pool_.optional(text(" ")), pool_.optional(marker("<|constrain|>")), text("json")});
  return pool_.sequence(
      {text(tool.name), pool_.optional(channel), pool_.optional(type), marker(kMessage), arguments(tool)});
}

ExprId CallWriter::arguments(const Tool& tool) {
  const auto known = arguments_.find(&tool);
  if (known != arguments_.end()) return pool_.call(known->second);
  const RuleId rule = rules_.add(schema_rules(tool));
  arguments_.emplace(&tool, rule);
  return pool_.call(rule);
}

grammar::Rules CallWriter::schema_rules(const Tool& tool) {
  constexpr const char* kAnyObject = R"({"type":"object"})";
  if (form_.any_arguments && !tool.strict) return grammar::parse_json_schema(kAnyObject, limits_);
  ordered_json schema = tool.parameters;
  schema["type"] = "object";
  try {
    return grammar::parse_json_schema(schema.dump(-1, ' ', false, ordered_json::error_handler_t::replace), limits_);
  } catch (const Error& error) {
    const std::string message = fmt::format("the arguments of \"{}\": {}", tool.name, error.what());
    if (tool.strict || form_.required) fail_usage("{}", message);
    relaxed_.push_back(message);
  }
  return grammar::parse_json_schema(kAnyObject, limits_);
}

// ---- parts

ExprId CallWriter::marker(std::string_view marker) {
  return pool_.choice({text(marker), text(grammar::TokenTrie::kControlByte + std::string(marker))});
}

ExprId CallWriter::calls(ExprId call, ExprId between) {
  if (!form_.parallel || form_.required) return call;
  return pool_.sequence({call, pool_.repeat(pool_.sequence({between, call}), 0, grammar::kUnlimited)});
}

}  // namespace inferno::calls
