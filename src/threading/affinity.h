// Gets and sets the CPUs a thread may run on.
#pragma once

#include <pthread.h>

#include <vector>

namespace inferno {

// Ascending CPU numbers as the system counts them; all online CPUs where the system has no such mask.
[[nodiscard]] std::vector<int> thread_cpus(pthread_t thread);
// False when the system refuses (absent CPUs, no such call); the thread then stays where it was.
bool pin_thread(pthread_t thread, const std::vector<int>& cpus);

}  // namespace inferno
