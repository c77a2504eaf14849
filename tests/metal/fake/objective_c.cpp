#include "objective_c.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

// Looks the method up and continues there with the arguments as they came.
#if defined(__aarch64__)
__asm__(
    ".text\n"
    ".global objc_msgSend\n"
    ".type objc_msgSend, %function\n"
    "objc_msgSend:\n"
    "  stp x29, x30, [sp, #-224]!\n"
    "  mov x29, sp\n"
    "  stp x0, x1, [sp, #16]\n"
    "  stp x2, x3, [sp, #32]\n"
    "  stp x4, x5, [sp, #48]\n"
    "  stp x6, x7, [sp, #64]\n"
    "  str x8, [sp, #80]\n"
    "  stp q0, q1, [sp, #96]\n"
    "  stp q2, q3, [sp, #128]\n"
    "  stp q4, q5, [sp, #160]\n"
    "  stp q6, q7, [sp, #192]\n"
    "  bl fake_objc_lookup\n"
    "  mov x16, x0\n"
    "  ldp x0, x1, [sp, #16]\n"
    "  ldp x2, x3, [sp, #32]\n"
    "  ldp x4, x5, [sp, #48]\n"
    "  ldp x6, x7, [sp, #64]\n"
    "  ldr x8, [sp, #80]\n"
    "  ldp q0, q1, [sp, #96]\n"
    "  ldp q2, q3, [sp, #128]\n"
    "  ldp q4, q5, [sp, #160]\n"
    "  ldp q6, q7, [sp, #192]\n"
    "  ldp x29, x30, [sp], #224\n"
    "  br x16\n"
    ".size objc_msgSend, .-objc_msgSend\n");
#elif defined(__x86_64__)
// metal-cpp has a name of its own there for methods that return a floating type.
__asm__(
    ".text\n"
    ".global objc_msgSend\n"
    ".global objc_msgSend_fpret\n"
    ".type objc_msgSend, %function\n"
    ".type objc_msgSend_fpret, %function\n"
    "objc_msgSend:\n"
    "objc_msgSend_fpret:\n"
    "  push %rbp\n"
    "  mov %rsp, %rbp\n"
    "  sub $192, %rsp\n"
    "  mov %rdi, 0(%rsp)\n"
    "  mov %rsi, 8(%rsp)\n"
    "  mov %rdx, 16(%rsp)\n"
    "  mov %rcx, 24(%rsp)\n"
    "  mov %r8, 32(%rsp)\n"
    "  mov %r9, 40(%rsp)\n"
    "  movaps %xmm0, 48(%rsp)\n"
    "  movaps %xmm1, 64(%rsp)\n"
    "  movaps %xmm2, 80(%rsp)\n"
    "  movaps %xmm3, 96(%rsp)\n"
    "  movaps %xmm4, 112(%rsp)\n"
    "  movaps %xmm5, 128(%rsp)\n"
    "  movaps %xmm6, 144(%rsp)\n"
    "  movaps %xmm7, 160(%rsp)\n"
    "  call fake_objc_lookup@PLT\n"
    "  mov %rax, %r11\n"
    "  mov 0(%rsp), %rdi\n"
    "  mov 8(%rsp), %rsi\n"
    "  mov 16(%rsp), %rdx\n"
    "  mov 24(%rsp), %rcx\n"
    "  mov 32(%rsp), %r8\n"
    "  mov 40(%rsp), %r9\n"
    "  movaps 48(%rsp), %xmm0\n"
    "  movaps 64(%rsp), %xmm1\n"
    "  movaps 80(%rsp), %xmm2\n"
    "  movaps 96(%rsp), %xmm3\n"
    "  movaps 112(%rsp), %xmm4\n"
    "  movaps 128(%rsp), %xmm5\n"
    "  movaps 144(%rsp), %xmm6\n"
    "  movaps 160(%rsp), %xmm7\n"
    "  leave\n"
    "  jmp *%r11\n"
    ".size objc_msgSend, .-objc_msgSend\n");
#else
#error "the fake Objective-C runtime has no objc_msgSend for this CPU"
#endif

namespace fake {
namespace {

struct AutoreleasePool;

// Function-local: metal-cpp registers its selectors before main.
struct Runtime {
  std::set<std::string> names;  // of kinds and selectors; their addresses are what is compared
  std::map<std::pair<const char*, SEL>, void*> methods;
  std::map<std::string, Object*> classes;
  std::map<std::string, Object* (*)()> makers;
  std::vector<Object*> objects;
  std::vector<AutoreleasePool*> pools;
};
Runtime& runtime() {
  static auto* all = new Runtime;
  return *all;
}

const char* interned(const char* name) {
  return runtime().names.insert(name).first->c_str();
}
SEL selector_of(const char* name) {
  return reinterpret_cast<SEL>(const_cast<char*>(interned(name)));
}

struct ClassObject final : Object {
  explicit ClassObject(const char* of) : Object("class"), name(of) {}
  std::string name;
};

struct AutoreleasePool final : Object {
  static constexpr const char* kKind = "NSAutoreleasePool";
  AutoreleasePool() : Object(kKind) { runtime().pools.push_back(this); }
  void dispose() override {
    require(runtime().pools.back() == this, "an autorelease pool was released before the one inside of it");
    runtime().pools.pop_back();
    for (Object* object : objects) fake::release(object);
  }
  std::vector<Object*> objects;
};

void unknown_selector(Object* self, SEL selector) {
  fault(std::string("unknown selector: -[") + self->kind + " " + reinterpret_cast<const char*>(selector) + "]");
}
void released_object(Object* self, SEL selector) {
  fault(std::string("use after release: -[") + self->kind + " " + reinterpret_cast<const char*>(selector) + "]");
}
void* nothing() {
  return nullptr;
}

Object* object_retain(Object* self, SEL /*selector*/) {
  retain(self);
  return self;
}
void object_release(Object* self, SEL /*selector*/) {
  release(self);
}
Object* object_init(Object* self, SEL /*selector*/) {
  return self;
}
bool object_responds(Object* self, SEL /*selector*/, SEL asked) {
  return runtime().methods.contains({self->kind, asked}) && self->knows(reinterpret_cast<const char*>(asked));
}
Object* class_alloc(ClassObject* self, SEL /*selector*/) {
  const auto maker = runtime().makers.find(self->name);
  require(maker != runtime().makers.end(), "class " + self->name + " cannot be made here");
  return maker->second();
}
String* class_string(ClassObject* /*self*/, SEL /*selector*/, const char* text, size_t /*encoding*/) {
  return autoreleased<String>(text);
}
const char* string_text(String* self, SEL /*selector*/) {
  return self->text.c_str();
}

// What every object understands.
void* common_method(SEL selector) {
  static const std::map<SEL, void*> kMethods = {
      {selector_of("retain"), reinterpret_cast<void*>(object_retain)},
      {selector_of("release"), reinterpret_cast<void*>(object_release)},
      {selector_of("init"), reinterpret_cast<void*>(object_init)},
      {selector_of("respondsToSelector:"), reinterpret_cast<void*>(object_responds)},
  };
  const auto found = kMethods.find(selector);
  return found == kMethods.end() ? nullptr : found->second;
}

const bool kInstalled = [] {
  add_method("class", "alloc", reinterpret_cast<void*>(class_alloc));
  add_method("class", "stringWithCString:encoding:", reinterpret_cast<void*>(class_string));
  add_method(String::kKind, "UTF8String", reinterpret_cast<void*>(string_text));
  add_class(AutoreleasePool::kKind, []() -> Object* { return new AutoreleasePool; });
  return true;
}();

}  // namespace

void fault(const std::string& what) {
  throw Fault("fake Metal: " + what);
}

Object::Object(const char* of) : kind(interned(of)) {
  runtime().objects.push_back(this);
}

void add_to_pool(Object* object) {
  require(!runtime().pools.empty(), std::string("no autorelease pool around what makes a ") + object->kind);
  runtime().pools.back()->objects.push_back(object);
}

void retain(Object* object) {
  ++object->references;
}

void release(Object* object) {
  if (--object->references == 0) object->dispose();
}

int live(const char* kind) {
  int count = 0;
  for (const Object* object : runtime().objects) {
    count += object->references > 0 && std::string_view(object->kind) == kind ? 1 : 0;
  }
  return count;
}

void add_method(const char* kind, const char* selector, void* function) {
  runtime().methods[{interned(kind), selector_of(selector)}] = function;
}

void add_class(const char* name, Object* (*make)()) {
  runtime().makers[name] = make;
}

}  // namespace fake

extern "C" {

SEL sel_registerName(const char* name) {
  return fake::selector_of(name);
}

void* objc_lookUpClass(const char* name) {
  fake::Object*& found = fake::runtime().classes[name];
  if (found == nullptr) found = new fake::ClassObject(name);
  return found;
}

void* objc_getProtocol(const char* /*name*/) {
  return nullptr;
}

// Where the message goes. Faults are thrown there: nothing can be thrown through objc_msgSend itself.
void* fake_objc_lookup(fake::Object* self, SEL selector) {
  if (self == nullptr) return reinterpret_cast<void*>(fake::nothing);  // a message to nil
  if (self->references <= 0) return reinterpret_cast<void*>(fake::released_object);
  const auto found = fake::runtime().methods.find({self->kind, selector});
  if (found != fake::runtime().methods.end() && self->knows(reinterpret_cast<const char*>(selector))) {
    return found->second;
  }
  if (void* common = fake::common_method(selector)) return common;
  return reinterpret_cast<void*>(fake::unknown_selector);
}
}
