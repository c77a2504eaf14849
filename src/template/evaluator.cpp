#include "template/evaluator.h"

#include <fmt/core.h>

#include "base/text.h"
#include "template/builtins.h"
#include "template/evaluator_block.h"
#include "template/operators.h"
#include "template/value_text.h"

namespace inferno::jinja {

void Scope::set(uint32_t name, Value value) {
  for (auto& [known, held] : variables) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Evaluator::Evaluator(const Program& program, const TemplateVariables& variables, Run& run)
    : program_(program), run_(run), inputs_(program.names.size()), globals_(program.names.size()) {
  for (const auto& [name, value] : variables.entries()) {
    const auto found = program.ids.find(name);
    if (found != program.ids.end()) inputs_[found->second] = &value;
  }
  for (size_t i = 0; i < globals_.size(); ++i) {
    const GlobalFunction function = find_global(program.names[i].as_view());
    globals_[i] =
        function == nullptr ? Value::undefined(program.names[i]) : Value::object(run.make<FunctionObject>(function));
  }
  const auto id_of = [&](const char* name) {
    const auto found = program.ids.find(name);
    return found == program.ids.end() ? UINT32_MAX : found->second;
  };
  loop_name_ = id_of("loop");
  caller_name_ = id_of("caller");
  kwargs_name_ = id_of("kwargs");
  varargs_name_ = id_of("varargs");
}

Text Evaluator::render() {
  Text out;
  out_ = &out;
  for (const uint32_t name : program_.frame.missing) root_.set(name, Value::undefined(program_.names[name]));
  exec(program_.body);
  out_ = nullptr;
  return out;
}

const Value* Evaluator::find_variable(uint32_t name) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    run_.step(scope->variables.size() / 32);
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return inputs_[name] != nullptr ? inputs_[name] : &globals_[name];
}

Value Evaluator::eval(const Expression& expression) {
  const Run::Nested nested(run_);
  run_.step();
  switch (expression.kind) {
    case Expression::Kind::constant:
      return expression.value;
    case Expression::Kind::name:
      return *find_variable(expression.name);
    case Expression::Kind::list:
      return eval_list(expression, Sequence::Form::list);
    case Expression::Kind::tuple:
      return eval_list(expression, Sequence::Form::tuple);
    case Expression::Kind::dict:
      return eval_dict(expression);
    case Expression::Kind::attribute:
      return attribute(eval(*expression.operands[0]), expression.value);
    case Expression::Kind::item:
      return eval_item(expression);
    case Expression::Kind::slice:
      throw Failure("a slice has no place here");
    case Expression::Kind::call:
      return eval_call(expression);
    case Expression::Kind::filter:
      return eval_filter(expression);
    case Expression::Kind::test: {
      const Value input = eval(*expression.operands[0]);
      CallArguments arguments = eval_arguments(expression.arguments);
      return Value::boolean(apply_test(expression.test, expression.value, input, arguments));
    }
    case Expression::Kind::negate:
      return negate(eval(*expression.operands[0]));
    case Expression::Kind::plus:
      return plus(eval(*expression.operands[0]));
    case Expression::Kind::logical_not:
      return Value::boolean(!truthy(eval(*expression.operands[0])));
    case Expression::Kind::logical_and:
      return eval_logical(expression, false);
    case Expression::Kind::logical_or:
      return eval_logical(expression, true);
    case Expression::Kind::compare:
      return eval_compare(expression);
    case Expression::Kind::arithmetic:
      return eval_arithmetic(expression);
    case Expression::Kind::concat:
      return eval_concat(expression);
    case Expression::Kind::conditional:
      return eval_conditional(expression);
  }
  return {};
}

Value Evaluator::eval_list(const Expression& expression, Sequence::Form form) {
  std::vector<Value> items;
  items.reserve(expression.operands.size());
  for (const Expression* operand : expression.operands) items.push_back(eval(*operand));
  return run_.list(std::move(items), form);
}

Value Evaluator::eval_dict(const Expression& expression) {
  Dict dict;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    const Value key = eval(*expression.operands[i]);
    dict.set(key, eval(*expression.operands[i + 1]));
  }
  return run_.dict(std::move(dict));
}

Value Evaluator::eval_item(const Expression& expression) {
  const Value object = eval(*expression.operands[0]);
  const Expression& index = *expression.operands[1];
  if (index.kind != Expression::Kind::slice) return item(object, eval(index));
  std::optional<Value> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (index.operands[i] != nullptr) bounds[i] = eval(*index.operands[i]);
  }
  const auto bound = [&](size_t i) { return bounds[i] ? &*bounds[i] : nullptr; };
  return slice(run_, object, bound(0), bound(1), bound(2));
}

Value Evaluator::eval_call(const Expression& expression) {
  const Expression& callee = *expression.operands[0];
  run_.set_line(expression.line);
  if (callee.kind == Expression::Kind::attribute) {
    // Most calls are methods of strings and dicts: these need no object that binds them.
    const Value self = eval(*callee.operands[0]);
    const bool has_method = find_method(self, callee.value.as_view()) != nullptr;
    const Value function = has_method ? Value() : attribute(self, callee.value);
    CallArguments arguments = eval_arguments(expression.arguments);
    return has_method ? call_method(self, callee.value.as_view(), arguments) : call(function, arguments);
  }
  const Value function = eval(callee);
  CallArguments arguments = eval_arguments(expression.arguments);
  return call(function, arguments);
}

Value Evaluator::eval_filter(const Expression& expression) {
  const Value input = expression.operands[0] == nullptr ? block_input_ : eval(*expression.operands[0]);
  CallArguments arguments = eval_arguments(expression.arguments);
  run_.set_line(expression.line);
  return apply_filter(expression.filter, expression.value, input, arguments);
}

Value Evaluator::eval_logical(const Expression& expression, bool stops_at) {
  for (size_t i = 0; i + 1 < expression.operands.size(); ++i) {
    Value value = eval(*expression.operands[i]);
    if (truthy(value) == stops_at) return value;
  }
  return eval(*expression.operands.back());
}

Value Evaluator::eval_compare(const Expression& expression) {
  Value left = eval(*expression.operands[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = eval(*expression.operands[i + 1]);
    if (!compare(run_, expression.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::eval_arithmetic(const Expression& expression) {
  Value left = eval(*expression.operands[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    left = arithmetic(run_, expression.operators[i], left, eval(*expression.operands[i + 1]));
  }
  return left;
}

Value Evaluator::eval_concat(const Expression& expression) {
  Text text;
  for (const Expression* operand : expression.operands) {
    const Value value = eval(*operand);
    if (value.is(Kind::string)) {
      run_.charge(value.as_text().size());
      text.append(value.as_text());
    } else {
      text.append(to_text(run_, value));
    }
  }
  return run_.text(std::move(text));
}

Value Evaluator::eval_conditional(const Expression& expression) {
  if (truthy(eval(*expression.operands[1]))) return eval(*expression.operands[0]);
  if (expression.operands[2] != nullptr) return eval(*expression.operands[2]);
  return Value::undefined_because("an inline if without else was false");
}

CallArguments Evaluator::eval_arguments(const std::vector<Argument>& arguments) {
  CallArguments out;
  const auto name_argument = [&](std::string name, Value value) {
    run_.step(1 + out.named.size() / 4);
    for (const auto& [known, held] : out.named) {
      if (known == name) throw Failure(fmt::format("the argument '{}' is given twice", printable(name)));
    }
    out.named.emplace_back(std::move(name), std::move(value));
  };
  for (const Argument& argument : arguments) {
    const Value value = eval(*argument.value);
    switch (argument.form) {
      case Argument::Form::positional:
        out.positional.push_back(value);
        break;
      case Argument::Form::named:
        name_argument(argument.name, value);
        break;
      case Argument::Form::star:
        for (Value& item : iterate(run_, value)) out.positional.push_back(std::move(item));
        break;
      case Argument::Form::double_star:
        if (!value.is(Kind::dict)) throw Failure("** needs a dict");
        run_.step(value.weight());
        for (const auto& [key, held] : value.as_dict().entries) {
          if (!key.is(Kind::string)) throw Failure("** needs a dict with names as keys");
          name_argument(std::string(key.as_view()), held);
        }
        break;
    }
  }
  return out;
}

}  // namespace inferno::jinja
