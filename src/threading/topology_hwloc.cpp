#include "threading/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/text.h"

namespace inferno {

namespace {

// Owns a hwloc topology.
class Handle {
 public:
  Handle() {
    if (hwloc_topology_init(&topology_) != 0) fail("hwloc cannot start");
  }
  ~Handle() { hwloc_topology_destroy(topology_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
};

// On Arm the system rates cores against the fastest one. Three-level phones have prime, big and little cores; big ones
// are fast enough to share work with prime ones, little ones (about a third of the speed) are not.
constexpr double kPerformanceShare = 0.6;

struct CoreKind {
  hwloc_bitmap_t cpus = nullptr;
  int efficiency = -1;  // hwloc's rank: larger = more performance; -1 = unknown
  std::optional<int64_t> capacity;
  std::string_view core_type;
};

std::vector<CoreKind> core_kinds(hwloc_topology_t topology, std::vector<hwloc_bitmap_t>& owned) {
  std::vector<CoreKind> kinds;
  const int count = hwloc_cpukinds_get_nr(topology, 0);
  for (int i = 0; i < count; ++i) {
    CoreKind kind;
    owned.push_back(kind.cpus = hwloc_bitmap_alloc());
    unsigned infos = 0;
    hwloc_info_s* info = nullptr;
    if (hwloc_cpukinds_get_info(topology, static_cast<unsigned>(i), kind.cpus, &kind.efficiency, &infos, &info, 0) !=
        0) {
      continue;
    }
    for (unsigned j = 0; j < infos; ++j) {
      if (std::string_view(info[j].name) == "CoreType") kind.core_type = info[j].value;
      if (std::string_view(info[j].name) == "LinuxCapacity") kind.capacity = parse_int(info[j].value);
    }
    kinds.push_back(kind);
  }
  return kinds;
}

bool is_performance(const CoreKind& kind, const std::vector<CoreKind>& kinds) {
  if (kind.core_type == "IntelAtom") return false;
  if (kind.core_type == "IntelCore") return true;
  int64_t most = 0;
  int best = -1;
  for (const CoreKind& other : kinds) {
    most = std::max(most, other.capacity.value_or(0));
    best = std::max(best, other.efficiency);
  }
  if (kind.capacity && most > 0) {
    return static_cast<double>(*kind.capacity) >= kPerformanceShare * static_cast<double>(most);
  }
  return kind.efficiency == best;
}

// Numbers objects by first appearance; a null object (a machine without that level) is one group.
class Numbering {
 public:
  int of(hwloc_obj_t object) { return numbers_.try_emplace(object, static_cast<int>(numbers_.size())).first->second; }
  [[nodiscard]] int count() const { return static_cast<int>(numbers_.size()); }

 private:
  std::map<hwloc_obj_t, int> numbers_;
};

hwloc_obj_t node_of(hwloc_topology_t topology, unsigned cpu) {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    if (hwloc_bitmap_isset(node->cpuset, cpu)) return node;
  }
  return nullptr;
}

Topology read(hwloc_topology_t handle) {
  Topology topology;
  std::vector<hwloc_bitmap_t> owned;
  const std::vector<CoreKind> kinds = core_kinds(handle, owned);
  Numbering packages;
  Numbering nodes;
  Numbering l3s;
  Numbering cores;
  std::map<int, int> siblings;  // core -> CPUs so far
  hwloc_obj_t pu = nullptr;
  while ((pu = hwloc_get_next_obj_by_type(handle, HWLOC_OBJ_PU, pu)) != nullptr) {
    const auto above = [&](hwloc_obj_type_t type) { return hwloc_get_ancestor_obj_by_type(handle, type, pu); };
    hwloc_obj* const core = above(HWLOC_OBJ_CORE);
    hwloc_obj* const l3 = above(HWLOC_OBJ_L3CACHE);
    Cpu cpu{.id = static_cast<int>(pu->os_index),
            .package = packages.of(above(HWLOC_OBJ_PACKAGE)),
            .node = nodes.of(node_of(handle, pu->os_index)),
            // Without an L3 the package is what its cores share.
            .l3 = l3s.of(l3 != nullptr ? l3 : above(HWLOC_OBJ_PACKAGE)),
            .core = cores.of(core != nullptr ? core : pu)};
    cpu.sibling = siblings[cpu.core]++;
    for (const CoreKind& kind : kinds) {
      if (hwloc_bitmap_isset(kind.cpus, pu->os_index)) cpu.performance = is_performance(kind, kinds);
    }
    if (l3 != nullptr && topology.l3_bytes == 0) topology.l3_bytes = l3->attr->cache.size;
    topology.cpus.push_back(cpu);
  }
  for (hwloc_bitmap_t bitmap : owned) hwloc_bitmap_free(bitmap);
  if (topology.cpus.empty()) fail("hwloc reports no CPU");
  const auto performance = [](const Cpu& cpu) { return cpu.performance; };
  // A machine with only efficiency cores uses those.
  if (std::none_of(topology.cpus.begin(), topology.cpus.end(), performance)) {
    for (Cpu& cpu : topology.cpus) cpu.performance = true;
  }
  topology.hybrid = !std::all_of(topology.cpus.begin(), topology.cpus.end(), performance);
  std::sort(topology.cpus.begin(), topology.cpus.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.package, a.node, a.l3, a.core, a.sibling) < std::tie(b.package, b.node, b.l3, b.core, b.sibling);
  });
  topology.packages = packages.count();
  topology.nodes = nodes.count();
  topology.l3_groups = l3s.count();
  topology.cores = cores.count();
  return topology;
}

}  // namespace

Topology Topology::detect() {
  const Handle handle;
  hwloc_topology_set_flags(handle.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(handle.get()) != 0) fail("hwloc cannot read this machine's topology");
  return read(handle.get());
}

Topology Topology::from_xml(const std::string& xml) {
  const Handle handle;
  // hwloc counts the terminating zero as part of the buffer.
  if (hwloc_topology_set_xmlbuffer(handle.get(), xml.c_str(), static_cast<int>(xml.size() + 1)) != 0 ||
      hwloc_topology_load(handle.get()) != 0) {
    fail("hwloc cannot read this topology XML");
  }
  return read(handle.get());
}

Topology Topology::from_synthetic(const std::string& description) {
  const Handle handle;
  if (hwloc_topology_set_synthetic(handle.get(), description.c_str()) != 0 || hwloc_topology_load(handle.get()) != 0) {
    fail("hwloc cannot read the topology '{}'", printable(description));
  }
  return read(handle.get());
}

}  // namespace inferno
