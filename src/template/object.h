// The objects of a run: what has state or can be called.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "template/syntax.h"
#include "template/value.h"

namespace inferno::jinja {

class Evaluator;
class Run;

// What a call passes.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Variables of a block; blocks are nested. A variable that is there but missing hides those outside.
struct Scope {
  explicit Scope(Scope* outer) : parent(outer) {}
  Scope* parent;
  std::vector<std::pair<uint32_t, Value>> variables;
  void set(uint32_t name, Value value);
};

struct NamespaceObject : Object {
  NamespaceObject() : Object(Type::name_space) {}
  Dict attributes;
};

struct MacroObject : Object {
  MacroObject(const Statement& made_by, Scope* where) : Object(Type::macro), definition(made_by), scope(where) {}
  const Statement& definition;
  Scope* scope;  // where it was defined; lives as long as the run
};

struct CyclerObject : Object {
  explicit CyclerObject(std::vector<Value> all) : Object(Type::cycler), items(std::move(all)) {}
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  explicit JoinerObject(Value text) : Object(Type::joiner), separator(std::move(text)) {}
  Value separator;
  bool used = false;
};

// A method that was taken from its value without being called.
struct MethodObject : Object {
  MethodObject(Value value, std::string_view method) : Object(Type::method), self(std::move(value)), name(method) {}
  Value self;
  std::string name;
};

using GlobalFunction = Value (*)(Evaluator& evaluator, CallArguments& arguments);

struct FunctionObject : Object {
  explicit FunctionObject(GlobalFunction what) : Object(Type::function), function(what) {}
  GlobalFunction function;
};

// The variable `loop`. Items are fetched one by one, because a loop's condition may depend on what its body did.
struct LoopObject : Object {
  LoopObject() : Object(Type::loop) {}
  Value source;                            // what is iterated over, when it is a list; otherwise:
  std::vector<Value> own;                  // its items
  const std::vector<Value>* items = &own;  // before the condition
  size_t next = 0;                         // into items
  Value previous, current, after;
  bool has_after = false;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  bool filtered = false;  // the length is known only when all items were tested
  std::vector<Value> last_changed;
  bool has_changed = false;
  const Statement* statement = nullptr;  // null once the loop has ended
  Scope* scope = nullptr;                // around the loop
};

}  // namespace inferno::jinja
