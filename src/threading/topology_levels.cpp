#include <algorithm>

#include "threading/topology.h"

namespace inferno {

Topology Topology::from_levels(const std::vector<CoreLevel>& levels) {
  Topology topology{.packages = 1, .nodes = 1};
  for (size_t level = 0; level < levels.size(); ++level) {
    const int cores = std::max(levels[level].cores, 0);
    const int sharing = levels[level].cores_per_cache > 0 ? levels[level].cores_per_cache : std::max(cores, 1);
    for (int core = 0; core < cores; ++core) {
      const int id = static_cast<int>(topology.cpus.size());
      topology.cpus.push_back(
          {.id = id, .l3 = topology.l3_groups + core / sharing, .core = id, .performance = level == 0});
    }
    topology.l3_groups += (cores + sharing - 1) / sharing;
    topology.hybrid = topology.hybrid || (level > 0 && cores > 0);
  }
  topology.cores = static_cast<int>(topology.cpus.size());
  return topology;
}

}  // namespace inferno
