#include "template/run.h"

#include <fmt/core.h>

namespace inferno::jinja {

Value Run::text(Text text, bool markup) {
  charge(text.footprint());
  return Value::string(std::move(text), markup);
}

Value Run::list(std::vector<Value> items, Sequence::Form form) {
  charge(sizeof(Sequence) + items.size() * sizeof(Value));
  return Value::sequence({.form = form, .items = std::move(items)});
}

Value Run::dict(Dict dict) {
  charge(sizeof(Dict) + dict.entries.size() * 4 * sizeof(Value));
  return Value::dict(std::move(dict));
}

Value Run::generator(const std::function<void(std::vector<Value>& items)>& produce) {
  Sequence sequence{.form = Sequence::Form::generator};
  try {
    produce(sequence.items);
  } catch (const LimitFailure&) {
    throw;
  } catch (const Failure& failure) {
    sequence.failure = failure.what();
  }
  charge(sizeof(Sequence) + sequence.items.size() * sizeof(Value));
  return Value::sequence(std::move(sequence));
}

void Run::fail_steps() const {
  throw LimitFailure(fmt::format("the template does not end: {} steps were taken", limits_.steps));
}

void Run::fail_bytes() const {
  throw LimitFailure(fmt::format("the template's values need more than {} bytes", limits_.bytes));
}

void Run::fail_output() const {
  throw LimitFailure(fmt::format("the template writes more than {} bytes", limits_.output));
}

void Run::fail_depth(int limit) {
  throw LimitFailure(fmt::format("calls and expressions are nested more than {} deep", limit));
}

}  // namespace inferno::jinja
