// Functions a template can call.
#include <fmt/core.h>

#include <ctime>

#include "base/text.h"
#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"
#include "template/value_text.h"

namespace inferno::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as jinja2's sandbox

Value range_function(Evaluator& evaluator, CallArguments& arguments) {
  const Parameters parameters("range", "-first -second? -step?", arguments);
  const bool bounded = parameters.has(1);
  const int64_t begin = bounded ? parameters.integer(0, 0) : 0;
  const int64_t end = parameters.integer(bounded ? 1 : 0, 0);
  const int64_t step = parameters.integer(2, 1);
  if (step == 0) throw Failure("the step of a range is 0");
  std::vector<Value> items;
  int64_t at = begin;
  while (step > 0 ? at < end : at > end) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      throw Failure(fmt::format("a range has more than {} numbers", kMaxRange));
    }
    items.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  evaluator.run().charge(items.size() * sizeof(Value));
  return Value::sequence(
      {.form = Sequence::Form::range, .items = std::move(items), .begin = begin, .end = end, .step = step});
}

// dict(mapping or pairs, name=value ...)
Dict make_dict(Evaluator& evaluator, std::string_view function, CallArguments& arguments) {
  Run& run = evaluator.run();
  Dict dict;
  if (arguments.positional.size() > 1) throw Failure(fmt::format("{}() takes one argument without a name", function));
  for (const Value& value : arguments.positional) {
    if (is_undefined(value)) throw Failure(value.undefined_message());
    if (value.is(Kind::dict)) {
      run.charge(value.as_dict().entries.size() * sizeof(Value) * 4);
      dict = value.as_dict();
      continue;
    }
    for (const Value& pair : iterate(run, value)) {
      const std::vector<Value> parts = iterate(run, pair);
      if (parts.size() != 2) throw Failure(fmt::format("{}() needs pairs", function));
      dict.set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value::control(name), value);
  dict.depth = 1;
  dict.weight = 1;
  return dict;
}

Value dict_function(Evaluator& evaluator, CallArguments& arguments) {
  return evaluator.run().dict(make_dict(evaluator, "dict", arguments));
}

Value namespace_function(Evaluator& evaluator, CallArguments& arguments) {
  Dict attributes = make_dict(evaluator, "namespace", arguments);
  auto* made = evaluator.run().make<NamespaceObject>();
  made->attributes = std::move(attributes);
  return Value::object(made);
}

Value cycler_function(Evaluator& evaluator, CallArguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) throw Failure("cycler() needs items");
  return Value::object(evaluator.run().make<CyclerObject>(std::move(arguments.positional)));
}

Value joiner_function(Evaluator& evaluator, CallArguments& arguments) {
  const Parameters parameters("joiner", "sep?", arguments);
  return Value::object(evaluator.run().make<JoinerObject>(parameters.has(0) ? parameters.at(0) : Value::control(", ")));
}

Value raise_exception(Evaluator& evaluator, CallArguments& arguments) {
  const Parameters parameters("raise_exception", "message", arguments);
  throw Failure(
      fmt::format("the template refuses: {}", printable(to_text(evaluator.run(), parameters.at(0)).view(), 300)));
}

// As Python's datetime.now().strftime(), which knows no time zone and adds %f.
Value strftime_now(Evaluator& evaluator, CallArguments& arguments) {
  const Parameters parameters("strftime_now", "format", arguments);
  const Text& format = parameters.string(0)->as_text();
  std::string prepared;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format.view()[i];
    const char next = i + 1 < format.size() ? format.view()[i + 1] : '\0';
    if (c != '%' || next == '\0') {
      prepared += c == '%' ? "%%" : std::string(1, c);
      continue;
    }
    ++i;
    if (next == 'f') {
      prepared += "000000";
    } else if (next != 'z' && next != 'Z') {
      prepared += {c, next};
    }
  }
  evaluator.run().charge(format.size() * 32);
  const std::time_t now = evaluator.run().now();
  std::tm parts{};
  if (localtime_r(&now, &parts) == nullptr) throw Failure("the time cannot be told");
  std::string out(prepared.size() * 32 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), prepared.c_str(), &parts));
  bool control = true;
  format.each_run(0, format.size(), [&](std::string_view, bool is_control) { control = control && is_control; });
  return evaluator.run().text(Text(std::move(out), control));
}

}  // namespace

GlobalFunction find_global(std::string_view name) {
  if (name == "range") return range_function;
  if (name == "dict") return dict_function;
  if (name == "namespace") return namespace_function;
  if (name == "cycler") return cycler_function;
  if (name == "joiner") return joiner_function;
  if (name == "raise_exception") return raise_exception;
  if (name == "strftime_now") return strftime_now;
  return nullptr;
}

}  // namespace inferno::jinja
