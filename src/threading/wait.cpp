#include "threading/wait.h"

#include <chrono>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#endif

namespace inferno {

#if defined(__linux__)
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

void SystemPlatform::sleep_while_equal(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void SystemPlatform::wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

uint64_t SystemPlatform::preemptions() {
  rusage usage{};
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? static_cast<uint64_t>(usage.ru_nivcsw) : 0;
}
#else
void SystemPlatform::sleep_while_equal(std::atomic<uint32_t>& word, uint32_t value) {
  word.wait(value, std::memory_order_relaxed);
}

void SystemPlatform::wake_all(std::atomic<uint32_t>& word) {
  word.notify_all();
}

uint64_t SystemPlatform::preemptions() {
  return 0;
}
#endif

double ticks_per_microsecond() {
  static const double rate = [] {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    const uint64_t start_ticks = cpu_ticks();
    std::chrono::duration<double, std::micro> elapsed{};
    do {
      elapsed = Clock::now() - start;
    } while (elapsed.count() < 1000);
    return static_cast<double>(cpu_ticks() - start_ticks) / elapsed.count();
  }();
  return rate;
}

}  // namespace inferno
