// Runs a Program over variables. One Evaluator for one rendering.
#pragma once

#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "template/object.h"
#include "template/run.h"
#include "template/syntax.h"
#include "template/template.h"

namespace inferno::jinja {

class Evaluator {
 public:
  Evaluator(const Program& program, const TemplateVariables& variables, Run& run);

  // What the template writes.
  [[nodiscard]] Text render();

  // For filters, tests, methods and functions.
  [[nodiscard]] Run& run() { return run_; }
  [[nodiscard]] Value attribute(const Value& object, const Value& name);  // object.name
  [[nodiscard]] Value item(const Value& object, const Value& index);      // object[index]
  [[nodiscard]] Value call(const Value& callee, CallArguments& arguments);
  [[nodiscard]] Value apply_filter(const FilterEntry* filter, const Value& name, const Value& input,
                                   CallArguments& arguments);
  [[nodiscard]] bool apply_test(const TestEntry* test, const Value& name, const Value& input, CallArguments& arguments);
  // Loops: the item after the current one, or nothing.
  [[nodiscard]] bool peek(LoopObject& loop);
  [[nodiscard]] int64_t length(LoopObject& loop);

 private:
  enum class Flow : uint8_t { forward, stop, next };  // stop: break, next: continue
  // A scope that ends with the block, unless a macro keeps it.
  class Block;
  // Writes to a text of its own.
  class Capture;

  // expressions
  Value eval(const Expression& expression);
  Value eval_list(const Expression& expression, Sequence::Form form);
  Value eval_dict(const Expression& expression);
  Value eval_item(const Expression& expression);
  Value eval_call(const Expression& expression);
  Value eval_filter(const Expression& expression);
  Value eval_logical(const Expression& expression, bool stops_at);
  Value eval_compare(const Expression& expression);
  Value eval_arithmetic(const Expression& expression);
  Value eval_concat(const Expression& expression);
  Value eval_conditional(const Expression& expression);
  CallArguments eval_arguments(const std::vector<Argument>& arguments);
  [[nodiscard]] const Value* find_variable(uint32_t name);

  // values of objects
  Value object_attribute(const Value& value, std::string_view name);
  Value loop_attribute(LoopObject& loop, std::string_view name);

  // calls
  Value call_macro(MacroObject& macro, CallArguments& arguments);
  void bind_macro(const Statement& macro, CallArguments& arguments);
  Value call_loop(LoopObject& loop, CallArguments& arguments);
  Value call_method(const Value& self, std::string_view name, CallArguments& arguments);

  // statements
  Flow exec(const Body& body);
  Flow exec(const Statement& statement);
  Flow exec_branch(const Statement& statement);
  Flow exec_loop(const Statement& statement, const Value& iterable, int64_t depth);
  Flow exec_capture(const Statement& statement);
  Flow exec_filter(const Statement& statement);
  Flow exec_with(const Statement& statement);
  void exec_call(const Statement& statement);
  void write(const Text& text);
  void assign(const Target& target, const Value& value);
  bool fetch(LoopObject& loop, Value& item);
  bool fetch_untested(LoopObject& loop, Value& item);

  const Program& program_;
  Run& run_;
  std::vector<const Value*> inputs_;  // by name; null: not given
  std::vector<Value> globals_;        // by name; undefined: none
  Scope root_{nullptr};
  Scope* scope_ = &root_;
  std::deque<Scope> kept_;  // scopes that macros were defined in
  Text* out_ = nullptr;
  Value block_input_;  // what a filter block or a set block gives to its filter
  uint32_t loop_name_ = UINT32_MAX;
  uint32_t caller_name_ = UINT32_MAX, kwargs_name_ = UINT32_MAX, varargs_name_ = UINT32_MAX;
};

}  // namespace inferno::jinja
