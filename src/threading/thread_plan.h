// The number of threads and their CPUs: what the user requested, within what the machine and its limits allow.
//
// Everything here is a pure function of its arguments except the functions at the end, which query this machine.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "threading/topology.h"

namespace inferno {

// The largest pool.
inline constexpr int kMaxThreads = 1024;

enum class Affinity {
  automatic,  // threads are kept to performance cores and NUMA nodes where there are several kinds, else not pinned
  none,       // the system places threads
  compact,    // one CPU each, near each other
  spread,     // one CPU each, over packages, nodes and L3 caches in turn
  list,       // one CPU each, as listed
};

enum class Numa {
  none,
  distribute,  // threads in equal parts on all nodes
  isolate,     // all threads on the node the caller runs on
  numactl,     // as the numactl program set the affinity mask
};

// What the user requested. Invalid values are usage Errors that name the option or variable.
struct ThreadRequest {
  std::optional<int> threads;
  std::string threads_origin;  // what messages call the origin: "`threads`", "INFERNO_THREADS", "OMP_NUM_THREADS"
  Affinity affinity = Affinity::automatic;
  std::vector<int> affinity_list;  // for Affinity::list
  Numa numa = Numa::none;
};

// An integer of at least 1; larger than the machine is fine here, the plan clamps it and says so.
[[nodiscard]] int parse_thread_count(std::string_view text, std::string_view origin);
void parse_affinity(std::string_view text, ThreadRequest& request);  // auto|none|compact|spread|LIST
void parse_numa(std::string_view text, ThreadRequest& request);      // distribute|isolate|numactl
// Fills `threads` from INFERNO_THREADS, else from OMP_NUM_THREADS, when the request leaves it open. `environment`
// returns a variable's value or null. A malformed OMP_NUM_THREADS is not ours to judge and is ignored.
void apply_environment(ThreadRequest& request, const char* (*environment)(const char* name));

// The CPUs this process may use.
struct CpuLimits {
  std::vector<int> allowed;     // affinity mask within the cpuset, system CPU numbers
  std::optional<double> quota;  // control group, in CPUs
  int current_cpu = 0;          // where the caller runs now
  bool can_pin = true;          // false: the system places threads itself, on performance cores while there are any
};

struct ThreadPlan {
  int threads = 1;
  // cpus[i]: where thread i may run; empty = the system decides. Fits ThreadPoolOptions::cpus.
  std::vector<std::vector<int>> cpus;
  bool uneven = false;                // uses performance and efficiency cores
  std::vector<std::string> reasons;   // why this count and these CPUs, one line each
  std::vector<std::string> warnings;  // where the request was not followed
};

// A list with CPUs that are absent or not allowed is a usage Error.
[[nodiscard]] ThreadPlan plan_threads(const Topology& topology, const CpuLimits& limits, const ThreadRequest& request);

// The machine, the chosen threads and why, as text.
[[nodiscard]] std::string draw_thread_plan(const Topology& topology, const CpuLimits& limits, const ThreadPlan& plan);

// CPUs usable at the same time: the mask, limited by the quota rounded up.
[[nodiscard]] int available_cpu_count(const CpuLimits& limits);

// ---- this machine ----

[[nodiscard]] CpuLimits detect_cpu_limits();
[[nodiscard]] int available_cpu_count();
// The default width of a pool: the plan for an empty request and this process's environment.
[[nodiscard]] int default_thread_count();

}  // namespace inferno
