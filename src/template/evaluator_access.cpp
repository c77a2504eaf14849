// Attributes and elements. Nothing here reaches outside the values: there are no attributes but those listed.
#include <fmt/core.h>

#include <algorithm>

#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"
#include "template/unicode.h"

namespace inferno::jinja {
namespace {

const char* owner_name(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
      return "none";
    case Kind::string:
      return "string";
    case Kind::sequence:
      return "list";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return "object";
    default:
      return "number";
  }
}

}  // namespace

Value Evaluator::attribute(const Value& object, const Value& name) {
  if (is_undefined(object)) throw Failure(object.undefined_message());
  const std::string_view key = name.as_view();
  Value missing = Value::undefined(name, owner_name(object));
  if (find_method(object, key) != nullptr) return Value::object(run_.make<MethodObject>(object, key));
  if (is_forbidden_method(object, key)) {
    return Value::undefined_because(
        fmt::format("a template may not change a {}: {}() is not there", owner_name(object), key));
  }
  if (object.is(Kind::dict)) {
    const Value* found = object.as_dict().find(key);
    return found == nullptr ? missing : *found;
  }
  if (object.is(Kind::sequence) && object.as_sequence().form == Sequence::Form::group) {
    if (key == "grouper") return object.as_sequence().items[0];
    if (key == "list") return object.as_sequence().items[1];
  }
  if (!object.is(Kind::object) || key.starts_with('_')) return missing;
  Value found = object_attribute(object, key);
  return is_undefined(found) && found.as_view().empty() ? missing : found;
}

Value Evaluator::item(const Value& object, const Value& index) {
  switch (object.kind()) {
    case Kind::undefined:
      throw Failure(object.undefined_message());
    case Kind::string:
      if (index.is_integral()) {
        const std::string_view text = object.as_view();
        run_.step(text.size() / 64);
        const auto count = static_cast<int64_t>(count_characters(text));
        const int64_t at = index.as_integer() < 0 ? index.as_integer() + count : index.as_integer();
        if (at < 0 || at >= count) break;
        const size_t offset = offset_of(text, static_cast<size_t>(at));
        return run_.text(object.as_text().slice(offset, offset + character_at(text, offset).size), object.is_markup());
      }
      break;
    case Kind::sequence:
      if (const Value* found = element(object.as_sequence(), index)) return *found;
      break;
    case Kind::dict:
      if (const Value* found = is_hashable(index) ? object.as_dict().find(index) : nullptr) return *found;
      if (index.is(Kind::string) && find_method(object, index.as_view()) == nullptr) {
        return Value::undefined(index, "dict");
      }
      break;
    default:
      break;
  }
  if (index.is(Kind::string)) return attribute(object, index);
  return Value::undefined(index, owner_name(object));
}

// An undefined without a name when there is no such attribute.
Value Evaluator::object_attribute(const Value& value, std::string_view name) {
  Value missing = Value::undefined(Value::control(""));
  Object& object = value.as_object();
  switch (object.type()) {
    case Object::Type::name_space: {
      const Value* found = static_cast<NamespaceObject&>(object).attributes.find(name);
      return found == nullptr ? missing : *found;
    }
    case Object::Type::loop:
      return loop_attribute(static_cast<LoopObject&>(object), name);
    case Object::Type::macro: {
      const Statement& definition = static_cast<MacroObject&>(object).definition;
      if (name == "name") {
        return definition.kind == Statement::Kind::macro ? program_.names[definition.name] : Value();
      }
      if (name == "catch_kwargs") return Value::boolean(definition.uses_kwargs);
      if (name == "catch_varargs") return Value::boolean(definition.uses_varargs);
      if (name == "caller") return Value::boolean(definition.uses_caller);
      if (name != "arguments") return missing;
      std::vector<Value> names;
      for (const Parameter& parameter : definition.parameters) names.push_back(parameter.text);
      return run_.list(std::move(names), Sequence::Form::tuple);
    }
    case Object::Type::cycler: {
      auto& cycler = static_cast<CyclerObject&>(object);
      if (name == "current") return cycler.items[cycler.position];
      if (name == "pos") return Value::integer(static_cast<int64_t>(cycler.position));
      return name == "items" ? run_.list(cycler.items, Sequence::Form::tuple) : missing;
    }
    case Object::Type::joiner:
      if (name == "sep") return static_cast<JoinerObject&>(object).separator;
      return name == "used" ? Value::boolean(static_cast<JoinerObject&>(object).used) : missing;
    default:
      return missing;
  }
}

Value Evaluator::loop_attribute(LoopObject& loop, std::string_view name) {
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(!peek(loop));
  if (name == "length") return Value::integer(length(loop));
  if (name == "revindex") return Value::integer(length(loop) - loop.index0);
  if (name == "revindex0") return Value::integer(length(loop) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") {
    return loop.index0 == 0 ? Value::undefined_because("there is no previous item") : loop.previous;
  }
  if (name == "nextitem") return peek(loop) ? loop.after : Value::undefined_because("there is no next item");
  return Value::undefined(Value::control(""));
}

}  // namespace inferno::jinja
