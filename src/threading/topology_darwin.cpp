#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/sysctl_darwin.h"
#include "threading/topology.h"

namespace inferno {

Topology Topology::detect() {
  const auto number = [](int64_t level, const char* what) {
    const std::string name = fmt::format("hw.perflevel{}.{}", level, what);
    return static_cast<int>(sysctl_number(name.c_str()).value_or(0));
  };
  std::vector<CoreLevel> levels;
  for (int64_t level = 0; level < sysctl_number("hw.nperflevels").value_or(0); ++level) {
    levels.push_back({.cores = number(level, "physicalcpu"), .cores_per_cache = number(level, "cpusperl2")});
  }
  Topology topology = from_levels(levels);
  if (!topology.cpus.empty()) return topology;
  // A system that names no levels, such as a virtual machine: all its CPUs are alike.
  return from_levels({{.cores = static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L))}});
}

}  // namespace inferno
