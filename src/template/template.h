// Chat templates as models ship them: Jinja, as transformers runs it.
//
//   const Template chat(source);
//   Variables variables;
//   variables.set("messages", Value::from...);
//   std::vector<PromptPiece> prompt = chat.render(variables);
//
// A Template is compiled once, is immutable and may be rendered from several threads at once. It reaches nothing but
// the values it is given. The output equals jinja2's (an ImmutableSandboxedEnvironment with trim_blocks and
// lstrip_blocks, loop controls and generation blocks) byte for byte, cut into pieces by origin: what the template
// itself says may become control tokens, what users say may not. What is left out of the language: docs/templates.md.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/prompt_piece.h"
#include "template/value.h"

namespace inferno {

struct TemplateLimits {
  uint64_t steps = 50'000'000;           // about as many nodes are evaluated in 2 s
  uint64_t bytes = uint64_t{512} << 20;  // of all values that are made
  uint64_t output = uint64_t{64} << 20;  // bytes
  int depth = 400;                       // of nested evaluations; a level of the stack is below 2 KiB
};

class TemplateVariables {
 public:
  // The last value of a name counts.
  void set(std::string name, jinja::Value value) { entries_.emplace_back(std::move(name), std::move(value)); }
  [[nodiscard]] const std::vector<std::pair<std::string, jinja::Value>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, jinja::Value>> entries_;
};

class Template {
 public:
  // A template that does not compile is an Error that names the line.
  explicit Template(std::string_view source);
  ~Template();
  Template(Template&& other) noexcept;
  Template& operator=(Template&& other) noexcept;

  // What the template writes, neighbours of one kind in one piece. An Error when it fails, refuses the messages
  // (raise_exception) or exceeds a limit. `now` is what strftime_now tells; without it the time of the call.
  [[nodiscard]] std::vector<PromptPiece> render(const TemplateVariables& variables, const TemplateLimits& limits = {},
                                                std::optional<std::time_t> now = std::nullopt) const;
  // Whether the template mentions a variable of this name.
  [[nodiscard]] bool uses(std::string_view variable) const;

 private:
  std::unique_ptr<const struct TemplateProgram> program_;
};

}  // namespace inferno
