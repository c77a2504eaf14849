// Where threads run: the CPUs they may use on Linux, their importance on macOS (affinity_linux.cpp,
// affinity_darwin.cpp).
#pragma once

#include <pthread.h>

#include <vector>

namespace inferno {

// Ascending CPU numbers as the system counts them; all online CPUs where the system has no such mask.
[[nodiscard]] std::vector<int> thread_cpus(pthread_t thread);
// False when the system refuses (absent CPUs, no such call); the thread then stays where it was.
bool pin_thread(pthread_t thread, const std::vector<int>& cpus);
// Whether the system lets a program choose the CPUs of its threads.
[[nodiscard]] bool can_pin_threads();
// The CPU that the caller runs on now; 0 where it is not known.
[[nodiscard]] int current_cpu();
// Where the system places threads by importance: marks the calling thread as one that somebody waits for.
void prefer_performance_cores();

}  // namespace inferno
