// The compiled form of a template: expressions and statements, owned by their Program and never changed after parsing.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "template/value.h"

namespace inferno::jinja {

struct Expression;
struct FilterEntry;
struct TestEntry;

enum class Operator : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,  // arithmetic
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in  // comparison
};

struct Argument {
  enum class Form : uint8_t { positional, named, star, double_star };
  Form form = Form::positional;
  std::string name;
  const Expression* value = nullptr;
};

struct Expression {
  enum class Kind : uint8_t {
    constant,  // value
    name,      // name, value: its text
    list,
    tuple,      // operands
    dict,       // operands: key, value, key, value ...
    attribute,  // operands[0] . value
    item,       // operands[0] [ operands[1] ]
    slice,      // operands: begin, end, step, each null when not given; inside an item
    call,       // operands[0] ( arguments )
    filter,     // operands[0] | value ( arguments ); operands[0] null: the body of a block
    test,       // operands[0] is value ( arguments )
    negate,
    plus,
    logical_not,
    logical_and,
    logical_or,  // operands, two or more
    compare,
    arithmetic,  // operands, operators between them
    concat,      // operands
    conditional  // operands: then, condition, else (null when not given)
  };
  Kind kind = Kind::constant;
  int line = 1;
  uint32_t name = 0;
  Value value;
  std::vector<const Expression*> operands;
  std::vector<Operator> operators;
  std::vector<Argument> arguments;
  const FilterEntry* filter = nullptr;  // null: unknown, an error when it is reached
  const TestEntry* test = nullptr;
};

// What `set`, `for` and `with` assign to.
struct Target {
  enum class Kind : uint8_t { name, attribute, tuple };
  Kind kind = Kind::name;
  uint32_t name = 0;
  Value attribute;  // of a namespace
  std::vector<Target> parts;
};

struct Statement;
using Body = std::vector<const Statement*>;

struct Branch {
  const Expression* condition = nullptr;  // null: else
  Body body;
};

struct Parameter {
  uint32_t name = 0;
  Value text;                         // of the name
  const Expression* value = nullptr;  // the default
};

// What a block with variables of its own needs to know.
struct Frame {
  std::vector<uint32_t> missing;  // names that are undefined when it begins, whatever is outside
  bool captured = false;          // a macro or a caller inside may keep its variables
};

struct Statement {
  enum class Kind : uint8_t {
    text,        // value
    print,       // expressions
    branch,      // branches
    loop,        // targets[0], expressions: iterable, condition (or null); body, otherwise; recursive
    set,         // targets[0], expressions[0]
    capture,     // targets[0], body, expressions[0]: a filter or null
    macro,       // name, parameters, body
    call,        // expressions[0]: a call; parameters, body: its caller
    filter,      // expressions[0]: a filter, body
    with,        // targets, expressions, body
    generation,  // body
    stop,
    next  // break, continue
  };
  Kind kind = Kind::text;
  int line = 1;
  uint32_t name = 0;
  Value value;
  std::vector<Target> targets;
  std::vector<const Expression*> expressions;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  Body body;
  Body otherwise;
  Frame frame;            // of body
  Frame otherwise_frame;  // of otherwise
  bool recursive = false;
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;  // macro and call: names the body mentions
};

struct Program {
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::vector<Value> names;  // by id
  std::unordered_map<std::string, uint32_t> ids;
  Body body;
  Frame frame;

  uint32_t intern(std::string_view name);
};

}  // namespace inferno::jinja
