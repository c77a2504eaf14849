// The machine's CPUs: packages, NUMA nodes, shared L3 caches, cores, SMT siblings, core kinds. As hwloc sees them on
// Linux (topology_hwloc.cpp), as the system's own numbers say on macOS (topology_darwin.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace inferno {

// One logical CPU. The numbers of groups count from 0 within the machine; `id` is the system's own number.
struct Cpu {
  int id = 0;
  int package = 0;
  int node = 0;
  int l3 = 0;
  int core = 0;
  int sibling = 0;          // which of its core's CPUs: 0 is the first
  bool performance = true;  // false = an efficiency core
};

// Cores that are alike.
struct CoreLevel {
  int cores = 0;
  int cores_per_cache = 0;  // that share their last cache; 0 = all of them
};

struct Topology {
  std::vector<Cpu> cpus;  // sorted by package, node, L3, core, sibling, so that adjacent ones are near
  int packages = 0;
  int nodes = 0;
  int l3_groups = 0;
  int cores = 0;
  uint64_t l3_bytes = 0;  // of the first L3; 0 = none seen
  bool hybrid = false;    // both kinds of cores

  // This machine, CPUs that are closed to this process included.
  [[nodiscard]] static Topology detect();
  // From hwloc's XML, or from its synthetic notation ("package:2 core:4 pu:2"). An Error when hwloc refuses it. Only in
  // builds with hwloc.
  [[nodiscard]] static Topology from_xml(const std::string& xml);
  [[nodiscard]] static Topology from_synthetic(const std::string& description);
  // One package whose cores come in levels of performance, the fastest first.
  [[nodiscard]] static Topology from_levels(const std::vector<CoreLevel>& levels);
};

}  // namespace inferno
