// An Objective-C runtime in miniature: objects with reference counts, messages by (kind of object, selector), and
// autorelease pools. A mistake that a real one would let pass, or crash on, is a Fault with a name.
//
// Objects are never freed, only marked as released, so that a message to one is a Fault and no crash.
#pragma once

#include <objc/runtime.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace fake {

class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fault(const std::string& what);
inline void require(bool right, const std::string& what) {
  if (!right) fault(what);
}

struct Object {
  explicit Object(const char* kind);
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  // The last reference is gone.
  virtual void dispose() {}
  // Whether it knows a message that others of its kind know.
  [[nodiscard]] virtual bool knows(std::string_view /*selector*/) const { return true; }

  const char* kind;  // the same address for all of a kind
  int references = 1;
};

template <typename T, typename... Args>
T* autoreleased(Args&&... args);
void add_to_pool(Object* object);
template <typename T, typename... Args>
T* autoreleased(Args&&... args) {
  T* object = new T(static_cast<Args&&>(args)...);
  add_to_pool(object);
  return object;
}
void retain(Object* object);
void release(Object* object);

// Objects of the kind that have references.
[[nodiscard]] int live(const char* kind);

void add_method(const char* kind, const char* selector, void* function);
// f(self, selector, arguments...), a lambda that captures nothing.
template <typename F>
void method(const char* kind, const char* selector, F f) {
  add_method(kind, selector, reinterpret_cast<void*>(+f));
}
// What `alloc` makes of a class.
void add_class(const char* name, Object* (*make)());

struct String final : Object {
  static constexpr const char* kKind = "NSString";
  explicit String(std::string words) : Object(kKind), text(std::move(words)) {}
  std::string text;
};

}  // namespace fake
