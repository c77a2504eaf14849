#include "threading/affinity.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>

namespace inferno {

std::vector<int> thread_cpus(pthread_t thread) {
  // The kernel refuses a buffer smaller than its own mask, whose size cannot be queried; so the buffer grows.
  for (size_t words = 16; words <= 4096; words *= 2) {
    std::vector<uint64_t> mask(words);
    const size_t bytes = words * sizeof(uint64_t);
    if (pthread_getaffinity_np(thread, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) != 0) continue;
    std::vector<int> cpus;
    for (size_t cpu = 0; cpu < bytes * 8; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, reinterpret_cast<cpu_set_t*>(mask.data()))) cpus.push_back(static_cast<int>(cpu));
    }
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

bool pin_thread(pthread_t thread, const std::vector<int>& cpus) {
  if (cpus.empty()) return false;
  const int highest = *std::max_element(cpus.begin(), cpus.end());
  if (*std::min_element(cpus.begin(), cpus.end()) < 0 || highest >= 1 << 18) return false;
  std::vector<uint64_t> mask(static_cast<size_t>(highest) / 64 + 1);
  const size_t bytes = mask.size() * sizeof(uint64_t);
  for (const int cpu : cpus) {
    CPU_SET_S(static_cast<size_t>(cpu), bytes, reinterpret_cast<cpu_set_t*>(mask.data()));
  }
  return pthread_setaffinity_np(thread, bytes, reinterpret_cast<const cpu_set_t*>(mask.data())) == 0;
}

bool can_pin_threads() {
  return true;
}

int current_cpu() {
  return std::max(0, sched_getcpu());
}

void prefer_performance_cores() {}

}  // namespace inferno
