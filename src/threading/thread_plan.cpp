#include "threading/thread_plan.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>

#include "threading/affinity.h"
#include "threading/cgroup.h"

namespace inferno {

int available_cpu_count() {
  const int cpus = static_cast<int>(thread_cpus(pthread_self()).size());
  const std::optional<double> quota = cgroup_cpu_quota();
  return quota ? std::clamp(static_cast<int>(std::ceil(*quota)), 1, cpus) : cpus;
}

int default_thread_count() {
  return available_cpu_count();
}

}  // namespace inferno
