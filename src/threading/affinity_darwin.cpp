#include <sys/qos.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "threading/affinity.h"

namespace inferno {

// The system places threads itself, by what their quality-of-service class says of their importance.
std::vector<int> thread_cpus(pthread_t /*thread*/) {
  std::vector<int> cpus(static_cast<size_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

bool pin_thread(pthread_t /*thread*/, const std::vector<int>& /*cpus*/) {
  return false;
}

bool can_pin_threads() {
  return false;
}

int current_cpu() {
  return 0;
}

void prefer_performance_cores() {
  // The class of work that somebody waits for: it runs on performance cores while there are any.
  pthread_set_qos_class_self_np(QOS_CLASS_USER_INTERACTIVE, 0);
}

}  // namespace inferno
