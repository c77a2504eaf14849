// Built without ThreadSanitizer's instrumentation: switching is not part of the program it checks.
#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_ASAN 1
#include <sanitizer/common_interface_defs.h>
#endif
#endif
#if defined(EMULATOR_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// Saves the registers that a function must keep on the stack, stores the stack pointer in *save and continues where the
// stack `load` was left. swapcontext does the same, and two system calls more.
extern "C" void inferno_switch_stack(void** save, void* load);

#if defined(__aarch64__)
__asm__(
    ".text\n"
    ".global inferno_switch_stack\n"
    "inferno_switch_stack:\n"
    "  stp x19, x20, [sp, #-160]!\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  ldp x19, x20, [sp], #160\n"
    "  ret\n");
constexpr size_t kFrameBytes = 160;
constexpr size_t kReturnAddress = 88;  // x30
#elif defined(__x86_64__)
__asm__(
    ".text\n"
    ".global inferno_switch_stack\n"
    "inferno_switch_stack:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
constexpr size_t kFrameBytes = 64;  // a word more than is popped: a function begins 8 bytes off a multiple of 16
constexpr size_t kReturnAddress = 48;
#else
#error "the emulator has no stack switch for this CPU"
#endif

namespace emulator {

struct Fiber {
  void* stack_pointer = nullptr;
  void (*run)() = nullptr;
  bool finished = false;  // waits in `entry` for something to run
  void* stack = nullptr;
  [[maybe_unused]] void* sanitizer = nullptr;  // its state while another fiber runs
};

namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
[[maybe_unused]] constexpr unsigned kNoSync = 1;  // a switch orders nothing

Fiber* current = nullptr;
void* entered_from = nullptr;
[[maybe_unused]] void* main_fiber = nullptr;
[[maybe_unused]] const void* main_stack = nullptr;
[[maybe_unused]] size_t main_stack_bytes = 0;

void begin_switch([[maybe_unused]] void** saved, [[maybe_unused]] const void* stack, [[maybe_unused]] size_t bytes,
                  [[maybe_unused]] void* to) {
#if defined(EMULATOR_ASAN)
  __sanitizer_start_switch_fiber(saved, stack, bytes);
#elif defined(EMULATOR_TSAN)
  __tsan_switch_to_fiber(to, kNoSync);
#endif
}

void entry() {
#if defined(EMULATOR_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &main_stack, &main_stack_bytes);
#endif
  // For ever: a stack that is used again costs the sanitizers less than a new one.
  for (;;) {
    current->run();
    current->finished = true;
    leave_fiber();
  }
}

}  // namespace

Fiber* start_fiber(size_t index, void (*run)()) {
  static std::vector<std::unique_ptr<Fiber>> fibers;
  while (fibers.size() <= index) fibers.push_back(std::make_unique<Fiber>());
  Fiber* fiber = fibers[index].get();
  if (fiber->stack == nullptr) {
    fiber->stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fiber->stack == MAP_FAILED) std::abort();
#if defined(EMULATOR_TSAN)
    fiber->sanitizer = __tsan_create_fiber(0);
#endif
  }
  fiber->run = run;
  if (fiber->finished) {
    fiber->finished = false;
    return fiber;
  }
#if !defined(EMULATOR_TSAN)
  fiber->sanitizer = nullptr;
#endif
  // A stack as if it had been left at the beginning of `entry`.
  char* frame = static_cast<char*>(fiber->stack) + kStackBytes - kFrameBytes;
  std::memset(frame, 0, kFrameBytes);
  void (*begin)() = entry;
  std::memcpy(frame + kReturnAddress, &begin, sizeof begin);
  fiber->stack_pointer = frame;
  return fiber;
}

void enter_fiber(Fiber* fiber) {
  current = fiber;
#if defined(EMULATOR_TSAN)
  main_fiber = __tsan_get_current_fiber();
#endif
  begin_switch(&main_fiber, fiber->stack, kStackBytes, fiber->sanitizer);
  inferno_switch_stack(&entered_from, fiber->stack_pointer);
#if defined(EMULATOR_ASAN)
  __sanitizer_finish_switch_fiber(main_fiber, nullptr, nullptr);
#endif
}

void leave_fiber() {
  Fiber* fiber = current;
  begin_switch(&fiber->sanitizer, main_stack, main_stack_bytes, main_fiber);
  inferno_switch_stack(&fiber->stack_pointer, entered_from);
#if defined(EMULATOR_ASAN)
  __sanitizer_finish_switch_fiber(fiber->sanitizer, &main_stack, &main_stack_bytes);
#endif
}

void release_edge([[maybe_unused]] void* edge) {
#if defined(EMULATOR_TSAN)
  __tsan_release(edge);
#endif
}
void acquire_edge([[maybe_unused]] void* edge) {
#if defined(EMULATOR_TSAN)
  __tsan_acquire(edge);
#endif
}

}  // namespace emulator
