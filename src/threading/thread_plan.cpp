#include "threading/thread_plan.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "threading/affinity.h"
#include "threading/cgroup.h"
#include "threading/cpu_list.h"

namespace inferno {

namespace {

// Threads beyond the quota are throttled in mid-step while the others wait for them, so the quota is rounded down;
// being a tenth of a CPU short of the next number is not worth losing a thread.
int threads_within(double quota) {
  return std::max(1, static_cast<int>(std::floor(quota + 0.1)));
}

int core_count(const std::vector<Cpu>& cpus) {
  std::set<int> cores;
  for (const Cpu& cpu : cpus) cores.insert(cpu.core);
  return static_cast<int>(cores.size());
}

std::vector<int> ids(const std::vector<Cpu>& cpus) {
  std::vector<int> list;
  list.reserve(cpus.size());
  for (const Cpu& cpu : cpus) list.push_back(cpu.id);
  std::sort(list.begin(), list.end());
  return list;
}

// The CPUs that threads may be put on, nearest first.
std::vector<Cpu> usable_cpus(const Topology& topology, const CpuLimits& limits) {
  const std::set<int> allowed(limits.allowed.begin(), limits.allowed.end());
  std::vector<Cpu> usable;
  for (const Cpu& cpu : topology.cpus) {
    if (allowed.contains(cpu.id)) usable.push_back(cpu);
  }
  // The mask and hwloc disagree only in odd sandboxes; then the mask is right, and nothing is known about its CPUs.
  if (usable.empty()) {
    for (const int id : limits.allowed) usable.push_back({.id = id, .core = static_cast<int>(usable.size())});
  }
  return usable;
}

std::vector<Cpu> performance_cpus(const std::vector<Cpu>& cpus) {
  std::vector<Cpu> list;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(list), [](const Cpu& cpu) { return cpu.performance; });
  return list.empty() ? cpus : list;
}

// One CPU of every core first, then the second ones: siblings share a core's units, so they come last.
std::vector<Cpu> compact_order(std::vector<Cpu> cpus) {
  std::map<int, int> used;
  for (Cpu& cpu : cpus) cpu.sibling = used[cpu.core]++;  // of those that are left
  std::sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) {
    const auto key = [](const Cpu& cpu) {
      return std::make_tuple(cpu.sibling, !cpu.performance, cpu.package, cpu.node, cpu.l3, cpu.core);
    };
    return key(a) < key(b);
  });
  return cpus;
}

// compact_order, round-robin over the groups that share a package, node and L3.
std::vector<Cpu> spread_order(const std::vector<Cpu>& cpus) {
  std::map<std::tuple<int, int, int>, int> rounds;
  std::vector<std::pair<std::tuple<int, int, int, int>, Cpu>> keyed;
  // Round r takes the r-th CPU of every group; within a round neighbouring groups are far apart: first over the
  // packages, then over their nodes and caches.
  for (const Cpu& cpu : compact_order(cpus)) {
    const int round = rounds[{cpu.package, cpu.node, cpu.l3}]++;
    keyed.push_back({{round, cpu.l3, cpu.node, cpu.package}, cpu});
  }
  std::map<int, int> first_l3;  // package -> its first L3, so that "first cache of each package" compare equal
  for (const Cpu& cpu : cpus) first_l3.try_emplace(cpu.package, cpu.l3);
  for (auto& [key, cpu] : keyed) std::get<1>(key) -= first_l3[cpu.package];
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Cpu> order;
  order.reserve(keyed.size());
  for (const auto& [key, cpu] : keyed) order.push_back(cpu);
  return order;
}

std::vector<Cpu> on_node(const std::vector<Cpu>& cpus, int node) {
  std::vector<Cpu> list;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(list), [&](const Cpu& cpu) { return cpu.node == node; });
  return list;
}

std::vector<int> nodes_of(const std::vector<Cpu>& cpus) {
  std::set<int> nodes;
  for (const Cpu& cpu : cpus) nodes.insert(cpu.node);
  return {nodes.begin(), nodes.end()};
}

std::string plural(int count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void check_affinity_list(const ThreadRequest& request, const std::vector<Cpu>& usable) {
  const std::vector<int> have = ids(usable);
  std::vector<int> absent;
  for (const int cpu : request.affinity_list) {
    if (!std::binary_search(have.begin(), have.end(), cpu)) absent.push_back(cpu);
  }
  if (!absent.empty()) {
    fail_usage("`affinity`: CPU {} cannot be used here; this process may use {}", format_cpu_list(absent),
               format_cpu_list(have));
  }
}

// Chooses the number of threads and their CPUs.
class Planner {
 public:
  Planner(const Topology& topology, const CpuLimits& limits, const ThreadRequest& request)
      : topology_(topology), limits_(limits), request_(request), usable_(usable_cpus(topology, limits)) {}

  ThreadPlan plan() {
    if (request_.affinity == Affinity::list) check_affinity_list(request_, usable_);
    narrow_to_node();
    choose_width();
    choose_places();
    find_uneven();
    return plan_;
  }

 private:
  void narrow_to_node() {
    if (request_.numa == Numa::none) return;
    if (nodes_of(usable_).size() < 2) {
      plan_.warnings.emplace_back(topology_.nodes < 2
                                      ? "`numa` changes nothing: this machine has one NUMA node"
                                      : "`numa` changes nothing: this process may use the CPUs of one node only");
      return;
    }
    plan_.reasons.emplace_back("`numa`: each part of the weights is placed by the thread that reads it");
    if (request_.numa == Numa::numactl) {
      plan_.reasons.emplace_back("`numa` numactl: the affinity mask decides which nodes are used");
    }
    if (request_.numa != Numa::isolate) return;
    int node = usable_.front().node;
    for (const Cpu& cpu : usable_) {
      if (cpu.id == limits_.current_cpu) node = cpu.node;
    }
    usable_ = on_node(usable_, node);
    plan_.reasons.push_back(fmt::format("`numa` isolate: node {} only, CPUs {}", node, format_cpu_list(ids(usable_))));
  }

  void choose_width() {
    const std::vector<Cpu> fast = performance_cpus(usable_);
    const int cores = core_count(fast);
    const int cpus = static_cast<int>(usable_.size());
    std::string why = fmt::format("{} ({} on this machine)", plural(cores, "usable physical core"), topology_.cores);
    if (topology_.hybrid) why = fmt::format("{} usable performance cores of {} cores", cores, topology_.cores);
    int width = cores;
    const int most = limits_.quota ? std::min(cpus, static_cast<int>(std::ceil(*limits_.quota))) : cpus;
    if (limits_.quota && threads_within(*limits_.quota) < width) {
      width = threads_within(*limits_.quota);
      why += fmt::format(", limited to {} by a control group quota of {:.2f} CPUs", width, *limits_.quota);
    }
    if (request_.affinity == Affinity::list && !request_.threads) {
      width = static_cast<int>(request_.affinity_list.size());
      why = "one per CPU in `affinity`";
    }
    if (request_.threads) {
      width = *request_.threads;
      why = fmt::format("{} requests {}; the default is {}", request_.threads_origin, width, why);
    }
    const int limit = std::clamp(most, 1, kMaxThreads);
    if (width > limit) {
      plan_.warnings.push_back(
          fmt::format("{} threads requested, {} available: using {}", width, plural(limit, "CPU"), limit));
      width = limit;
    }
    plan_.threads = width;
    plan_.reasons.push_back(fmt::format("{}: {}", plural(width, "thread"), why));
  }

  void choose_places() {
    const auto width = static_cast<size_t>(plan_.threads);
    // Prefer performance cores while there are enough of them.
    const std::vector<Cpu> fast = performance_cpus(usable_);
    const std::vector<Cpu>& pool = core_count(fast) >= plan_.threads ? fast : usable_;
    if (!limits_.can_pin) {
      if (request_.affinity != Affinity::automatic && request_.affinity != Affinity::none) {
        plan_.warnings.emplace_back("`affinity` changes nothing: this system places the threads itself");
      }
      plan_.reasons.emplace_back("not pinned: this system places the threads itself, by their importance");
      return;
    }
    switch (request_.affinity) {
      case Affinity::none:
        plan_.reasons.emplace_back("not pinned: `affinity` none");
        return;
      case Affinity::list:
        if (request_.numa == Numa::distribute)
          plan_.warnings.emplace_back("`affinity` LIST overrides `numa` distribute");
        for (size_t i = 0; i < width; ++i) {
          plan_.cpus.push_back({request_.affinity_list[i % request_.affinity_list.size()]});
        }
        plan_.reasons.emplace_back("pinned one by one: `affinity` list");
        return;
      case Affinity::compact:
      case Affinity::spread: {
        const bool spread = request_.affinity == Affinity::spread || request_.numa == Numa::distribute;
        const std::vector<Cpu> order = spread ? spread_order(pool) : compact_order(pool);
        for (size_t i = 0; i < width; ++i) plan_.cpus.push_back({order[i % order.size()].id});
        plan_.reasons.push_back(fmt::format("pinned one by one: `affinity` {}", spread ? "spread" : "compact"));
        return;
      }
      case Affinity::automatic:
        choose_groups(pool);
        return;
    }
  }

  // Threads are kept to groups of equal CPUs, not to single ones: a pinned thread cannot move away from a busy process.
  void choose_groups(const std::vector<Cpu>& pool) {
    const std::vector<int> nodes = nodes_of(pool);
    if (nodes.size() > 1 && request_.numa != Numa::numactl) {
      // Thread i goes to the node of its part, so that threads with neighbouring numbers share a node.
      for (int i = 0; i < plan_.threads; ++i) {
        const auto part = static_cast<size_t>(i) * nodes.size() / static_cast<size_t>(plan_.threads);
        plan_.cpus.push_back(ids(on_node(pool, nodes[part])));
      }
      plan_.reasons.push_back(fmt::format("kept to their part of {} NUMA nodes", nodes.size()));
    } else if (pool.size() < topology_.cpus.size() &&
               (pool.size() < usable_.size() || request_.numa == Numa::isolate)) {
      plan_.cpus.assign(static_cast<size_t>(plan_.threads), ids(pool));
      plan_.reasons.push_back(fmt::format("kept to CPUs {}", format_cpu_list(ids(pool))));
    } else {
      plan_.reasons.emplace_back("not pinned: all usable cores are alike, the system places the threads");
    }
  }

  // Whether threads may run on CPUs of both kinds.
  void find_uneven() {
    if (!limits_.can_pin && plan_.threads <= core_count(performance_cpus(usable_))) return;
    std::set<int> places;
    for (const std::vector<int>& cpus : plan_.cpus) places.insert(cpus.begin(), cpus.end());
    const auto any = [&](bool performance) {
      return std::any_of(usable_.begin(), usable_.end(), [&](const Cpu& cpu) {
        return cpu.performance == performance && (places.empty() || places.contains(cpu.id));
      });
    };
    plan_.uneven = plan_.threads > 1 && any(true) && any(false);
    if (plan_.uneven) plan_.reasons.emplace_back("cores of two kinds: threads claim rows in small chunks");
  }

  const Topology& topology_;
  const CpuLimits& limits_;
  const ThreadRequest& request_;
  std::vector<Cpu> usable_;
  ThreadPlan plan_;
};

}  // namespace

ThreadPlan plan_threads(const Topology& topology, const CpuLimits& limits, const ThreadRequest& request) {
  return Planner(topology, limits, request).plan();
}

int available_cpu_count(const CpuLimits& limits) {
  const int cpus = std::max(1, static_cast<int>(limits.allowed.size()));
  return limits.quota ? std::clamp(static_cast<int>(std::ceil(*limits.quota)), 1, cpus) : cpus;
}

CpuLimits detect_cpu_limits() {
  return {.allowed = thread_cpus(pthread_self()),
          .quota = cgroup_cpu_quota(),
          .current_cpu = current_cpu(),
          .can_pin = can_pin_threads()};
}

int available_cpu_count() {
  return available_cpu_count(detect_cpu_limits());
}

int default_thread_count() {
  ThreadRequest request;
  apply_environment(request, [](const char* name) -> const char* { return std::getenv(name); });
  const ThreadPlan plan = plan_threads(Topology::detect(), detect_cpu_limits(), request);
  for (const std::string& warning : plan.warnings) log(LogLevel::warn, "{}", warning);
  return plan.threads;
}

}  // namespace inferno
