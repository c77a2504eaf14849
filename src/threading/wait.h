// How a thread waits: spin, then yield the CPU, then sleep in the kernel.
//
// WaitPolicy holds the bounds. SystemPlatform holds the operations on this machine; the pool's protocol
// (protocol.h) is a template over it, so that a model checker can substitute its own atomics and sleep calls.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#if !defined(__aarch64__) && !defined(__x86_64__)
#include <chrono>
#endif

namespace inferno {

// The unit in which memory moves between cores.
inline constexpr size_t kCacheLine = 64;
// Distance between atomics that different threads write. Two lines: x86 prefetches adjacent lines in pairs, and Apple's
// cores have 128-byte lines.
inline constexpr size_t kHotLine = 128;

// The pause in a spin loop. On Arm `isb` (13 ns on a Neoverse V1) gives the fastest round trip between two cores:
// 219 ns, against 235 ns with `yield`, which is a no-op there, and 240 ns with `wfe`.
inline void cpu_relax() {
#if defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#elif defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A counter synchronized across CPUs that costs a few nanoseconds to read; ticks_per_microsecond() gives its rate.
inline uint64_t cpu_ticks() {
#if defined(__aarch64__)
  uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#elif defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Ticks of cpu_ticks() per microsecond; measured once, on first use (about a millisecond).
[[nodiscard]] double ticks_per_microsecond();

// Spinning is free only while nobody else wants the CPU. A thread that has used up its spins therefore checks whether
// it was preempted recently, and if so sleeps after fewer spins for a while: the thread it waits for has probably been
// preempted too and needs a CPU. Too few spins are bad as well: with a busy process on each CPU, decoding is 30 %
// slower with 20 spins than with 1000 (bench/threading/decode_bench --neighbours).
struct WaitPolicy {
  // Calls of cpu_relax() before giving up the CPU. A dispatch or barrier between running threads ends within these.
  uint32_t spins = 4000;
  // The same on a contended CPU.
  uint32_t contended_spins = 1000;
  // Yields between spinning and sleeping, inside a dispatch. None by default: on a busy machine a thread that yields
  // loses a whole time slice; steps are then 10 to 80 times slower than with sleeping.
  uint32_t yields = 0;
  // How long an idle worker spins after its last dispatch before it parks; covers the time between two steps. On a
  // contended CPU it parks after `spins`.
  uint32_t linger_us = 2000;
};

struct SystemPlatform {
  static constexpr size_t kLine = kHotLine;
  // An idle worker polls for work this many times between two reads of the clock.
  static constexpr uint32_t kPollsPerClockRead = 64;
  template <typename T>
  using Atomic = std::atomic<T>;
  // Data that is not atomic because the protocol orders every access to it.
  template <typename T>
  using Plain = T;

  static void relax() { cpu_relax(); }
  static void yield() { sched_yield(); }
  static uint64_t ticks() { return cpu_ticks(); }
  // Involuntary context switches of this thread so far; the call takes 0.3 us.
  static uint64_t preemptions();
  // Sleeps while word == value; may wake spuriously, so callers check again.
  static void sleep_while_equal(std::atomic<uint32_t>& word, uint32_t value);
  static void wake_all(std::atomic<uint32_t>& word);
};

}  // namespace inferno
