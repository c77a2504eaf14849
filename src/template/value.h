// What a template computes with: Python's values, as far as chat templates meet them.
//
// Values are cheap to copy and immutable, with two exceptions: a generator remembers how far it was read, and an Object
// (namespace, macro, loop, ...) may change; objects belong to the Run that made them. Lists and dicts never change: the
// sandbox forbids the methods that would. Containers know how deep they are nested and how
// much they hold, so that every walk over them is bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "template/text.h"

namespace inferno::jinja {

// What a template did wrong, without its place; Template turns it into an Error.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// It took more than a limit allows.
class LimitFailure : public Failure {
 public:
  using Failure::Failure;
};

enum class Kind : uint8_t { undefined, none, boolean, integer, floating, string, sequence, dict, object };

struct Sequence;
struct Dict;
class Object;

class Value {
 public:
  Value() = default;  // none
  [[nodiscard]] static Value boolean(bool value, bool user = false);
  [[nodiscard]] static Value integer(int64_t value, bool user = false);
  [[nodiscard]] static Value floating(double value, bool user = false);
  [[nodiscard]] static Value string(Text text, bool markup = false);
  [[nodiscard]] static Value control(std::string_view text) { return string(Text(std::string(text), true)); }
  [[nodiscard]] static Value user(std::string_view text) { return string(Text(std::string(text), false)); }
  [[nodiscard]] static Value sequence(Sequence sequence);
  [[nodiscard]] static Value dict(Dict dict);
  [[nodiscard]] static Value object(Object* object);
  // A name, attribute or element that is not there; `owner` is what lacks it, empty for a variable.
  [[nodiscard]] static Value undefined(Value name, const char* owner = nullptr);
  // An undefined with a message of its own.
  [[nodiscard]] static Value undefined_because(std::string_view message);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is(Kind kind) const { return kind_ == kind; }
  [[nodiscard]] bool is_number() const {  // as in Python, a boolean is one
    return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::floating;
  }
  [[nodiscard]] bool is_integral() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  [[nodiscard]] bool is_user() const { return user_; }      // numbers: computed from what a user gave
  [[nodiscard]] bool is_markup() const { return markup_; }  // strings: marked as safe, escapes what it meets
  [[nodiscard]] bool as_boolean() const { return scalar_.integer != 0; }
  [[nodiscard]] int64_t as_integer() const { return scalar_.integer; }  // booleans: 0 or 1
  [[nodiscard]] double as_double() const;                               // any number
  [[nodiscard]] const Text& as_text() const { return *static_cast<const Text*>(data_.get()); }
  [[nodiscard]] std::string_view as_view() const { return as_text().view(); }
  [[nodiscard]] const Sequence& as_sequence() const { return *static_cast<const Sequence*>(data_.get()); }
  [[nodiscard]] const Dict& as_dict() const { return *static_cast<const Dict*>(data_.get()); }
  [[nodiscard]] Object& as_object() const { return *scalar_.object; }
  [[nodiscard]] Value as_markup() const;       // a string, marked as safe
  [[nodiscard]] Value without_markup() const;  // a string, not marked
  [[nodiscard]] std::string undefined_message() const;
  [[nodiscard]] int depth() const;        // of nested containers: 0 for others
  [[nodiscard]] uint64_t weight() const;  // all that a walk through it meets: elements, and 64 bytes of text each
  [[nodiscard]] const void* identity() const { return data_.get(); }
  // The name Python has for its type, for messages.
  [[nodiscard]] std::string_view type_name() const;

 private:
  union Scalar {
    int64_t integer;
    double floating;
    Object* object;
    const char* owner;
  };
  Kind kind_ = Kind::none;
  bool user_ = false;
  bool markup_ = false;
  Scalar scalar_{.integer = 0};
  std::shared_ptr<const void> data_;  // Text, Sequence or Dict; undefined: the name or message as Text
};

constexpr int kMaxDepth = 128;                      // of nested containers
constexpr uint64_t kMaxWeight = uint64_t{1} << 24;  // of a container

struct Sequence {
  // How it prints, and what it can do.
  enum class Form : uint8_t { list, tuple, range, generator, keys, values, items, group };
  Form form = Form::list;
  std::vector<Value> items;
  mutable size_t next = 0;               // generators: what was read already
  std::string failure;                   // generators: why there are no more items; thrown when they are read
  int64_t begin = 0, end = 0, step = 1;  // ranges
  int depth = 1;
  uint64_t weight = 1;

  // A tuple or list that can be indexed, sliced and compared.
  [[nodiscard]] bool is_indexed() const {
    return form == Form::list || form == Form::tuple || form == Form::range || form == Form::group;
  }
  [[nodiscard]] bool is_tuple() const { return form == Form::tuple || form == Form::group; }
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in the order of their insertion
  int depth = 1;
  uint64_t weight = 1;

  // Replaces the value of a key that is there already. An unhashable key is a Failure.
  void set(const Value& key, Value value);
  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const Value* find(const Value& key) const;  // null as well for what cannot be a key

 private:
  [[nodiscard]] size_t position(const Value& key) const;  // entries.size() when it is not there
  [[nodiscard]] size_t position(std::string_view key) const;
  void add_to_index(size_t entry);
  std::unordered_map<std::string, size_t> index_;  // of larger dicts: keys in a form that is equal where they are
};

// Things with a life of their own; what they are is one enumerator, what they hold is in object.h.
class Object {
 public:
  enum class Type : uint8_t { name_space, macro, loop, cycler, joiner, method, function };
  explicit Object(Type type) : type_(type) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  [[nodiscard]] Type type() const { return type_; }

 private:
  Type type_;
};

[[nodiscard]] bool is_hashable(const Value& value);
[[nodiscard]] bool truthy(const Value& value);
// Python's ==, which never fails.
[[nodiscard]] bool equal(const Value& a, const Value& b);
[[nodiscard]] bool is_undefined(const Value& value);

}  // namespace inferno::jinja
