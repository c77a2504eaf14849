#include "threading/wait.h"

#include <chrono>

namespace inferno {

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
