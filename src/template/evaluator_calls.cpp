#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/evaluator_block.h"
#include "template/operators.h"

namespace inferno::jinja {

Value Evaluator::call(const Value& callee, CallArguments& arguments) {
  if (is_undefined(callee)) throw Failure(callee.undefined_message());
  if (!callee.is(Kind::object)) throw Failure(fmt::format("a {} cannot be called", callee.type_name()));
  Object& object = callee.as_object();
  switch (object.type()) {
    case Object::Type::function:
      return static_cast<FunctionObject&>(object).function(*this, arguments);
    case Object::Type::macro:
      return call_macro(static_cast<MacroObject&>(object), arguments);
    case Object::Type::loop:
      return call_loop(static_cast<LoopObject&>(object), arguments);
    case Object::Type::method: {
      auto& method = static_cast<MethodObject&>(object);
      return call_method(method.self, method.name, arguments);
    }
    case Object::Type::joiner: {
      auto& joiner = static_cast<JoinerObject&>(object);
      const Parameters none("joiner", "", arguments);
      return std::exchange(joiner.used, true) ? joiner.separator : Value::control("");
    }
    default:
      throw Failure("this object cannot be called");
  }
}

Value Evaluator::call_method(const Value& self, std::string_view name, CallArguments& arguments) {
  const BuiltinEntry* entry = find_method(self, name);
  if (entry == nullptr) throw Failure(fmt::format("a {} has no method '{}'", self.type_name(), printable(name)));
  const Parameters parameters(entry->name, entry->signature, arguments);
  return entry->function(*this, self, parameters);
}

Value Evaluator::apply_filter(const FilterEntry* filter, const Value& name, const Value& input,
                              CallArguments& arguments) {
  if (filter == nullptr) throw Failure(fmt::format("there is no filter named '{}'", printable(name.as_view())));
  const Parameters parameters(filter->name, filter->signature, arguments);
  return filter->function(*this, input, parameters);
}

bool Evaluator::apply_test(const TestEntry* test, const Value& name, const Value& input, CallArguments& arguments) {
  if (test == nullptr) throw Failure(fmt::format("there is no test named '{}'", printable(name.as_view())));
  const Parameters parameters(test->name, test->signature, arguments);
  return truthy(test->function(*this, input, parameters));
}

Value Evaluator::call_macro(MacroObject& macro, CallArguments& arguments) {
  const Run::Nested nested(run_);
  const Statement& definition = macro.definition;
  const Block block(*this, definition.frame, macro.scope);
  bind_macro(definition, arguments);
  Capture capture(*this);
  exec(definition.body);
  return capture.take();
}

// As jinja2's Macro: parameters by position, then by name; then caller, kwargs and varargs where the body uses them.
void Evaluator::bind_macro(const Statement& macro, CallArguments& arguments) {
  const auto take_named = [&](std::string_view name) {
    std::optional<Value> found;
    const auto at = std::find_if(arguments.named.begin(), arguments.named.end(),
                                 [&](const auto& entry) { return entry.first == name; });
    if (at != arguments.named.end()) {
      found = std::move(at->second);
      arguments.named.erase(at);
    }
    return found;
  };
  const auto has_parameter = [&](uint32_t name) {
    return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                       [&](const Parameter& parameter) { return parameter.name == name; });
  };
  std::vector<std::optional<Value>> values(macro.parameters.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (i < arguments.positional.size()) {
      values[i] = arguments.positional[i];
    } else {
      values[i] = take_named(macro.parameters[i].text.as_view());
    }
  }
  if (macro.uses_caller && !has_parameter(caller_name_)) {
    const std::optional<Value> caller = take_named("caller");
    scope_->set(caller_name_,
                caller && !caller->is(Kind::none) ? *caller : Value::undefined_because("there is no caller"));
  }
  if (macro.uses_kwargs && !has_parameter(kwargs_name_)) {
    Dict rest;
    for (auto& [name, value] : arguments.named) rest.set(Value::control(name), std::move(value));
    arguments.named.clear();
    scope_->set(kwargs_name_, run_.dict(std::move(rest)));
  }
  if (!arguments.named.empty()) {
    throw Failure(fmt::format("a macro takes no argument '{}'", printable(arguments.named.front().first)));
  }
  const size_t taken = std::min(values.size(), arguments.positional.size());
  if (macro.uses_varargs && !has_parameter(varargs_name_)) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                            arguments.positional.end());
    scope_->set(varargs_name_, run_.list(std::move(rest), Sequence::Form::tuple));
  } else if (arguments.positional.size() > taken) {
    throw Failure(fmt::format("a macro takes not more than {} arguments", values.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]) scope_->set(macro.parameters[i].name, std::move(*values[i]));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (values[i]) continue;
    scope_->set(parameter.name, parameter.value != nullptr ? eval(*parameter.value) : Value::undefined(parameter.text));
  }
}

Value Evaluator::call_loop(LoopObject& loop, CallArguments& arguments) {
  if (loop.statement == nullptr || !loop.statement->recursive) throw Failure("this loop is not recursive");
  const Parameters parameters("loop", "iterable", arguments);
  const Run::Nested nested(run_);
  Scope* outer = std::exchange(scope_, loop.scope);
  Capture capture(*this);
  exec_loop(*loop.statement, parameters.at(0), loop.depth0 + 1);
  scope_ = outer;
  return capture.take();
}

}  // namespace inferno::jinja
