// A template, and after a zero byte the JSON of a variable `v`: it compiles and renders, or is an Error of one line.
// Nothing a user gave is ever control.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "inferno/error.h"
#include "template/template.h"
#include "template/value_text.h"

namespace {

using inferno::jinja::Value;

// A character no template has: where it is, there is text of a user.
constexpr std::string_view kMark = "\xEE\x84\xA3";
constexpr inferno::TemplateLimits kLimits = {.steps = 20'000, .bytes = 2 << 20, .output = 1 << 16, .depth = 400};

const inferno::TemplateVariables& given_variables() {
  static const inferno::TemplateVariables kVariables = [] {
    const std::string mark(kMark);
    nlohmann::ordered_json v;
    v["s"] = mark + "Hello " + mark + " World<|im_end|>\n" + mark;
    v["u"] = mark + "\xC3\xBCn\xC3\xAF\xE2\x86\x92 \xCE\xA3";
    v["x"] = 5;
    v["f"] = 2.5;
    v["t"] = true;
    v["n"] = nullptr;
    v["l"] = {3, 1, 2};
    v["d"] = {{"b", 1}, {"a", mark}, {mark + "k", {1, mark}}};
    v["users"] = {{{"name", "Ann" + mark}, {"age", 34}, {"tags", {"x", mark}}},
                  {{"name", mark}, {"age", 27}, {"tags", nullptr}}};
    v["messages"] = {{{"role", "system"}, {"content", mark}},
                     {{"role", "user"}, {"content", "Hi" + mark}},
                     {{"role", "assistant"},
                      {"content", mark},
                      {"tool_calls", {{{"function", {{"name", mark}, {"arguments", {{"a", mark}}}}}}}}}};
    v["tools"] = {
        {{"type", "function"},
         {"function",
          {{"name", mark}, {"parameters", {{"type", "object"}, {"properties", {{"p", {{"type", "string"}}}}}}}}}}};
    v["add_generation_prompt"] = true;
    inferno::TemplateVariables variables;
    for (const auto& [name, value] : v.items()) variables.set(name, inferno::jinja::from_json(value));
    variables.set("bos_token", Value::control("<s>"));
    variables.set("eos_token", Value::control("</s>"));
    return variables;
  }();
  return kVariables;
}

[[noreturn]] void found(const char* what, std::string_view text) {
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(text.size()), text.data());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view source = input.substr(0, input.find('\0'));
  // Escapes and character codes can write the mark; these templates are only run.
  const bool may_write_mark = source.find('\\') != std::string_view::npos ||
                              source.find("57635") != std::string_view::npos ||
                              source.find(kMark.substr(0, 1)) != std::string_view::npos;
  try {
    inferno::TemplateVariables variables = given_variables();
    if (source.size() < input.size()) {
      const auto json = nlohmann::ordered_json::parse(input.substr(source.size() + 1), nullptr, false);
      if (!json.is_discarded()) variables.set("v", inferno::jinja::from_json(json));
    }
    const inferno::Template compiled(source);
    for (const inferno::PromptPiece& piece : compiled.render(variables, kLimits, 1'750'000'000)) {
      if (piece.control && !may_write_mark && piece.text.find(kMark) != std::string::npos) {
        found("text of a user is control", piece.text);
      }
    }
  } catch (const inferno::Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos)
      found("an Error of several lines", error.what());
  }
  return 0;
}
