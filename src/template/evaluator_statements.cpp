#include <fmt/core.h>

#include <algorithm>

#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/evaluator_block.h"
#include "template/operators.h"
#include "template/value_text.h"

namespace inferno::jinja {

void Evaluator::write(const Text& text) {
  run_.charge(text.size());
  run_.check_output(out_->size() + text.size());
  out_->append(text);
}

Evaluator::Flow Evaluator::exec(const Body& body) {
  for (const Statement* statement : body) {
    const Flow flow = exec(*statement);
    if (flow != Flow::forward) return flow;
  }
  return Flow::forward;
}

Evaluator::Flow Evaluator::exec(const Statement& statement) {
  const Run::Nested nested(run_);
  run_.step();
  run_.set_line(statement.line);
  switch (statement.kind) {
    case Statement::Kind::text:
      write(statement.value.as_text());
      return Flow::forward;
    case Statement::Kind::print:
      for (const Expression* expression : statement.expressions) {
        const Value value = eval(*expression);
        if (value.is(Kind::string)) {
          write(value.as_text());
        } else {
          write(to_text(run_, value));
        }
      }
      return Flow::forward;
    case Statement::Kind::branch:
      return exec_branch(statement);
    case Statement::Kind::loop: {
      const Value iterable = eval(*statement.expressions[0]);
      return exec_loop(statement, iterable, 0);
    }
    case Statement::Kind::set:
      assign(statement.targets[0], eval(*statement.expressions[0]));
      return Flow::forward;
    case Statement::Kind::capture:
      return exec_capture(statement);
    case Statement::Kind::macro:
      scope_->set(statement.name, Value::object(run_.make<MacroObject>(statement, scope_)));
      return Flow::forward;
    case Statement::Kind::call:
      exec_call(statement);
      return Flow::forward;
    case Statement::Kind::filter:
      return exec_filter(statement);
    case Statement::Kind::with:
      return exec_with(statement);
    case Statement::Kind::generation: {
      const Block block(*this, statement.frame);
      return exec(statement.body);
    }
    case Statement::Kind::stop:
      return Flow::stop;
    case Statement::Kind::next:
      return Flow::next;
  }
  return Flow::forward;
}

Evaluator::Flow Evaluator::exec_branch(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition == nullptr || truthy(eval(*branch.condition))) return exec(branch.body);
  }
  return Flow::forward;
}

bool Evaluator::fetch_untested(LoopObject& loop, Value& item) {
  if (loop.statement == nullptr || loop.next >= loop.items->size()) return false;
  item = (*loop.items)[loop.next++];
  return true;
}

bool Evaluator::fetch(LoopObject& loop, Value& item) {
  if (loop.has_after) {
    item = std::exchange(loop.after, Value());
    loop.has_after = false;
    return true;
  }
  while (fetch_untested(loop, item)) {
    if (!loop.filtered) return true;
    run_.step();
    const Block block(*this, loop.statement->otherwise_frame, loop.scope);
    assign(loop.statement->targets[0], item);
    if (truthy(eval(*loop.statement->expressions[1]))) return true;
  }
  return false;
}

bool Evaluator::peek(LoopObject& loop) {
  if (loop.has_after) return true;
  Value item;
  if (!fetch(loop, item)) return false;
  loop.after = std::move(item);
  loop.has_after = true;
  return true;
}

int64_t Evaluator::length(LoopObject& loop) {
  if (loop.filtered) {
    // All that is left is tested now.
    std::vector<Value> rest;
    Value item;
    const bool had_after = std::exchange(loop.has_after, false);
    while (fetch(loop, item)) rest.push_back(item);
    loop.has_after = had_after;
    loop.filtered = false;
    const auto done = static_cast<size_t>(loop.index0 + 1) + (had_after ? 1 : 0);
    run_.charge((done + rest.size()) * sizeof(Value));
    rest.insert(rest.begin(), done, Value());  // these were given out already
    loop.own = std::move(rest);
    loop.items = &loop.own;
    loop.next = done;
  }
  return static_cast<int64_t>(loop.items->size());
}

Evaluator::Flow Evaluator::exec_loop(const Statement& statement, const Value& iterable, int64_t depth) {
  LoopObject& loop = *run_.make<LoopObject>();
  if (iterable.is(Kind::sequence) && iterable.as_sequence().form != Sequence::Form::generator) {
    loop.source = iterable;
    loop.items = &loop.source.as_sequence().items;
  } else {
    loop.own = iterate(run_, iterable);
  }
  loop.filtered = statement.expressions[1] != nullptr;
  loop.statement = &statement;
  loop.scope = scope_;
  loop.depth0 = depth;
  // Whether some iteration came to its end decides about else, as in jinja2.
  bool any_completed = false;
  Value item;
  while (fetch(loop, item)) {
    ++loop.index0;
    loop.previous = std::exchange(loop.current, item);
    const Block block(*this, statement.frame);
    if (loop_name_ != UINT32_MAX) scope_->set(loop_name_, Value::object(&loop));
    assign(statement.targets[0], item);
    const Flow flow = exec(statement.body);
    if (flow == Flow::stop) break;
    any_completed = any_completed || flow == Flow::forward;
  }
  loop.statement = nullptr;
  loop.items = &loop.own;
  loop.source = {};
  loop.own = {};
  if (any_completed || statement.otherwise.empty()) return Flow::forward;
  const Block block(*this, statement.otherwise_frame);
  return exec(statement.otherwise);
}

Evaluator::Flow Evaluator::exec_capture(const Statement& statement) {
  Value text;
  {
    const Block block(*this, statement.frame);
    Capture capture(*this);
    const Flow flow = exec(statement.body);
    if (flow != Flow::forward) return flow;
    text = capture.take();
    if (statement.expressions[0] != nullptr) {
      const Value outer = std::exchange(block_input_, text);
      text = eval(*statement.expressions[0]);
      block_input_ = outer;
    }
  }
  assign(statement.targets[0], text);
  return Flow::forward;
}

Evaluator::Flow Evaluator::exec_filter(const Statement& statement) {
  Text text;
  {
    const Block block(*this, statement.frame);
    Capture capture(*this);
    const Flow flow = exec(statement.body);
    if (flow != Flow::forward) return flow;
    const Value outer = std::exchange(block_input_, capture.take());
    text = to_text(run_, eval(*statement.expressions[0]));
    block_input_ = outer;
  }
  write(text);
  return Flow::forward;
}

Evaluator::Flow Evaluator::exec_with(const Statement& statement) {
  std::vector<Value> values;
  for (const Expression* expression : statement.expressions) values.push_back(eval(*expression));
  const Block block(*this, statement.frame);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
  return exec(statement.body);
}

void Evaluator::exec_call(const Statement& statement) {
  const Expression& call_expression = *statement.expressions[0];
  const Value callee = eval(*call_expression.operands[0]);
  CallArguments arguments = eval_arguments(call_expression.arguments);
  for (const auto& [name, value] : arguments.named) {
    if (name == "caller") throw Failure("the argument 'caller' is given twice");
  }
  arguments.named.emplace_back("caller", Value::object(run_.make<MacroObject>(statement, scope_)));
  write(to_text(run_, call(callee, arguments)));
}

void Evaluator::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::name:
      run_.step(scope_->variables.size() / 32);
      scope_->set(target.name, value);
      return;
    case Target::Kind::attribute: {
      const Value* object = find_variable(target.name);
      const bool is_namespace = object->is(Kind::object) && object->as_object().type() == Object::Type::name_space;
      if (!is_namespace) throw Failure("an attribute can be set on a namespace only");
      run_.charge(sizeof(Value));
      static_cast<NamespaceObject&>(object->as_object()).attributes.set(target.attribute, value);
      return;
    }
    case Target::Kind::tuple: {
      const std::vector<Value> items = iterate(run_, value);
      if (items.size() != target.parts.size()) {
        throw Failure(fmt::format("{} values cannot be assigned to {} names", items.size(), target.parts.size()));
      }
      for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
      return;
    }
  }
}

}  // namespace inferno::jinja
