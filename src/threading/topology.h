// The machine's CPUs as hwloc sees them: packages, NUMA nodes, shared L3 caches, cores, SMT siblings, core kinds.
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
  // From hwloc's XML, or from its synthetic notation ("package:2 core:4 pu:2"). An Error when hwloc refuses it.
  [[nodiscard]] static Topology from_xml(const std::string& xml);
  [[nodiscard]] static Topology from_synthetic(const std::string& description);
};

}  // namespace inferno
