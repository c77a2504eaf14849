#include "threading/thread_plan.h"

#include <gtest/gtest.h>
#include <hwloc.h>

#include <numeric>
#include <set>
#include <string>

#include "inferno/error.h"
#include "threading/cpu_list.h"

namespace inferno {
namespace {

std::vector<int> range(int begin, int end) {
  std::vector<int> list(static_cast<size_t>(end - begin));
  std::iota(list.begin(), list.end(), begin);
  return list;
}

struct Kind {
  std::vector<int> cpus;
  int efficiency;
  const char* info_name;
  const char* info_value;
};

// A synthetic machine with kinds of cores, through hwloc's XML like a real machine's description.
Topology machine_with_kinds(const char* description, const std::vector<Kind>& kinds) {
  hwloc_topology_t handle = nullptr;
  hwloc_topology_init(&handle);
  hwloc_topology_set_synthetic(handle, description);
  hwloc_topology_load(handle);
  for (const Kind& kind : kinds) {
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    for (const int cpu : kind.cpus) hwloc_bitmap_set(cpus, static_cast<unsigned>(cpu));
    std::string name = kind.info_name;
    std::string value = kind.info_value;
    hwloc_info_s info{name.data(), value.data()};
    hwloc_cpukinds_register(handle, cpus, kind.efficiency, 1, &info, 0);
    hwloc_bitmap_free(cpus);
  }
  char* text = nullptr;
  int length = 0;
  hwloc_topology_export_xmlbuffer(handle, &text, &length, 0);
  const std::string xml(text);
  hwloc_free_xmlbuffer(handle, text);
  hwloc_topology_destroy(handle);
  return Topology::from_xml(xml);
}

// Six P cores with SMT switched off (CPUs 0, 2 ... 10) and eight E cores (12-19).
Topology hybrid_laptop() {
  return machine_with_kinds(
      "package:1 l3:1 group:14 core:1 pu:1(indexes=0,2,4,6,8,10,12,13,14,15,16,17,18,19)",
      {{{0, 2, 4, 6, 8, 10}, 1, "CoreType", "IntelCore"}, {range(12, 20), 0, "CoreType", "IntelAtom"}});
}

CpuLimits all_of(const Topology& topology) {
  CpuLimits limits;
  for (const Cpu& cpu : topology.cpus) limits.allowed.push_back(cpu.id);
  std::sort(limits.allowed.begin(), limits.allowed.end());
  return limits;
}

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    return error.what();
  }
  return "no error";
}

TEST(Topology, ReadsPackagesNodesCachesCoresAndSiblings) {
  const Topology topology = Topology::from_synthetic("package:2 numa:1 l3:2 core:4 pu:2");
  EXPECT_EQ(topology.packages, 2);
  EXPECT_EQ(topology.nodes, 2);
  EXPECT_EQ(topology.l3_groups, 4);
  EXPECT_EQ(topology.cores, 16);
  EXPECT_EQ(topology.cpus.size(), 32U);
  EXPECT_EQ(topology.cpus[1].core, topology.cpus[0].core);
  EXPECT_EQ(topology.cpus[1].sibling, 1);
  EXPECT_FALSE(topology.hybrid);
  EXPECT_THROW(Topology::from_synthetic("nonsense"), Error);
  EXPECT_THROW(Topology::from_xml("<nonsense"), Error);
}

TEST(Topology, ThisMachineHasAtLeastTheCpusThisProcessMayUse) {
  const Topology topology = Topology::detect();
  std::set<int> ids;
  for (const Cpu& cpu : topology.cpus) ids.insert(cpu.id);
  for (const int cpu : detect_cpu_limits().allowed) EXPECT_TRUE(ids.contains(cpu)) << cpu;
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), available_cpu_count());
}

TEST(ThreadPlan, OneCpuGetsOneThread) {
  const Topology topology = Topology::from_synthetic("package:1 core:1 pu:1");
  const ThreadPlan plan = plan_threads(topology, all_of(topology), {});
  EXPECT_EQ(plan.threads, 1);
  EXPECT_TRUE(plan.cpus.empty());
}

TEST(ThreadPlan, SmtServerGetsOneThreadPerPhysicalCore) {
  const Topology topology = Topology::from_synthetic("package:1 l3:1 core:16 pu:2");
  EXPECT_EQ(plan_threads(topology, all_of(topology), {}).threads, 16);
}

TEST(ThreadPlan, HybridLaptopGetsItsPerformanceCores) {
  const Topology topology = hybrid_laptop();
  EXPECT_TRUE(topology.hybrid);
  const ThreadPlan plan = plan_threads(topology, all_of(topology), {});
  EXPECT_EQ(plan.threads, 6);
  ASSERT_EQ(plan.cpus.size(), 6U);
  EXPECT_EQ(plan.cpus[5], (std::vector{0, 2, 4, 6, 8, 10})) << "kept to performance cores, not to single ones";
}

TEST(ThreadPlan, OnlyThreadsOnBothKindsOfCoresAreUneven) {
  const Topology topology = hybrid_laptop();
  EXPECT_FALSE(plan_threads(topology, all_of(topology), {}).uneven);
  ThreadRequest request{.threads = 10, .threads_origin = "`threads`"};
  const ThreadPlan wide = plan_threads(topology, all_of(topology), request);
  EXPECT_TRUE(wide.uneven);
  EXPECT_EQ(wide.reasons.back(), "cores of two kinds: threads claim rows in small chunks");
  request.threads = 4;
  EXPECT_FALSE(plan_threads(topology, all_of(topology), request).uneven);
  request.affinity = Affinity::none;
  EXPECT_TRUE(plan_threads(topology, all_of(topology), request).uneven) << "the system may use any core";
  EXPECT_FALSE(plan_threads(topology, {.allowed = {12, 13, 14}}, {}).uneven) << "efficiency cores only";
}

TEST(ThreadPlan, BigLittleGetsPrimeAndBigCores) {
  const Topology topology = machine_with_kinds("package:1 core:8 pu:1", {{range(0, 4), 0, "LinuxCapacity", "330"},
                                                                         {range(4, 7), 1, "LinuxCapacity", "870"},
                                                                         {{7}, 2, "LinuxCapacity", "1024"}});
  const ThreadPlan plan = plan_threads(topology, all_of(topology), {});
  EXPECT_EQ(plan.threads, 4);
  EXPECT_EQ(plan.cpus.at(0), (std::vector{4, 5, 6, 7}));
}

TEST(ThreadPlan, MaskThatLeavesOnlyEfficiencyCoresUsesThem) {
  const Topology topology = hybrid_laptop();
  const CpuLimits limits{.allowed = {12, 13, 14}};
  EXPECT_EQ(plan_threads(topology, limits, {}).threads, 3);
}

TEST(ThreadPlan, DualSocketGetsAllCoresEachThreadKeptToItsNode) {
  const Topology topology = Topology::from_synthetic("package:2 numa:1 l3:1 core:4 pu:2");
  const ThreadPlan plan = plan_threads(topology, all_of(topology), {});
  EXPECT_EQ(plan.threads, 8);
  ASSERT_EQ(plan.cpus.size(), 8U);
  EXPECT_EQ(plan.cpus[0], range(0, 8));
  EXPECT_EQ(plan.cpus[3], range(0, 8));
  EXPECT_EQ(plan.cpus[4], range(8, 16));
}

TEST(ThreadPlan, CpusetSubsetCountsItsPhysicalCores) {
  const Topology topology = Topology::from_synthetic("package:1 l3:1 core:8 pu:2");
  EXPECT_EQ(plan_threads(topology, {.allowed = {0, 1, 2, 3}}, {}).threads, 2) << "four CPUs of two cores";
  EXPECT_EQ(plan_threads(topology, {.allowed = {1, 3, 5}}, {}).threads, 3);
}

TEST(ThreadPlan, QuotaLimitsTheWidthRoundedDown) {
  const Topology topology = Topology::from_synthetic("package:1 core:8 pu:1");
  const auto width = [&](double quota) {
    CpuLimits limits = all_of(topology);
    limits.quota = quota;
    return plan_threads(topology, limits, {}).threads;
  };
  EXPECT_EQ(width(0.2), 1);
  EXPECT_EQ(width(1.5), 1);
  EXPECT_EQ(width(2.5), 2);
  EXPECT_EQ(width(3.95), 4);
  EXPECT_EQ(width(4.0), 4);
  EXPECT_EQ(width(64.0), 8);
}

TEST(ThreadPlan, RequestWinsOverTheDefaultAndIsClampedAloud) {
  const Topology topology = Topology::from_synthetic("package:1 core:4 pu:2");
  ThreadRequest request{.threads = 3, .threads_origin = "`threads`"};
  EXPECT_EQ(plan_threads(topology, all_of(topology), request).threads, 3);
  request.threads = 100'000;
  const ThreadPlan plan = plan_threads(topology, all_of(topology), request);
  EXPECT_EQ(plan.threads, 8);
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_EQ(plan.warnings[0], "100000 threads requested, 8 CPUs available: using 8");
  CpuLimits limits = all_of(topology);
  limits.quota = 2.5;
  EXPECT_EQ(plan_threads(topology, limits, request).threads, 3) << "the quota rounded up";
}

TEST(ThreadPlan, CompactUsesCoresBeforeSiblings) {
  const Topology topology = Topology::from_synthetic("package:2 l3:1 core:2 pu:2");
  const ThreadRequest request{.threads = 5, .threads_origin = "`threads`", .affinity = Affinity::compact};
  const ThreadPlan plan = plan_threads(topology, all_of(topology), request);
  EXPECT_EQ(plan.cpus, (std::vector<std::vector<int>>{{0}, {2}, {4}, {6}, {1}}));
}

TEST(ThreadPlan, SpreadTakesPackagesInTurn) {
  const Topology topology = Topology::from_synthetic("package:2 l3:2 core:2 pu:2");
  const ThreadRequest request{.threads = 6, .threads_origin = "`threads`", .affinity = Affinity::spread};
  const ThreadPlan plan = plan_threads(topology, all_of(topology), request);
  EXPECT_EQ(plan.cpus, (std::vector<std::vector<int>>{{0}, {8}, {4}, {12}, {2}, {10}}));
}

TEST(ThreadPlan, ListPinsInItsOrderAndSetsTheWidth) {
  const Topology topology = Topology::from_synthetic("package:1 core:8 pu:1");
  ThreadRequest request;
  parse_affinity("5,0-2", request);
  const ThreadPlan plan = plan_threads(topology, all_of(topology), request);
  EXPECT_EQ(plan.threads, 4);
  EXPECT_EQ(plan.cpus, (std::vector<std::vector<int>>{{5}, {0}, {1}, {2}}));
}

TEST(ThreadPlan, ListWithAbsentCpusIsAUsageError) {
  const Topology topology = Topology::from_synthetic("package:1 core:4 pu:1");
  ThreadRequest request;
  parse_affinity("1,6-7", request);
  EXPECT_EQ(message_of([&] { plan_threads(topology, all_of(topology), request); }),
            "`affinity`: CPU 6-7 cannot be used here; this process may use 0-3");
}

TEST(ThreadPlan, NumaIsolateStaysOnTheCallersNode) {
  const Topology topology = Topology::from_synthetic("package:2 numa:1 core:4 pu:1");
  CpuLimits limits = all_of(topology);
  limits.current_cpu = 6;
  ThreadRequest request;
  parse_numa("isolate", request);
  const ThreadPlan plan = plan_threads(topology, limits, request);
  EXPECT_EQ(plan.threads, 4);
  EXPECT_EQ(plan.cpus.at(0), range(4, 8));
}

TEST(ThreadPlan, NumaDistributeGivesEveryNodeItsShareEvenOfFewThreads) {
  const Topology topology = Topology::from_synthetic("package:2 numa:1 core:4 pu:1");
  ThreadRequest request{.threads = 2, .threads_origin = "`threads`"};
  parse_numa("distribute", request);
  const ThreadPlan plan = plan_threads(topology, all_of(topology), request);
  EXPECT_EQ(plan.cpus, (std::vector<std::vector<int>>{range(0, 4), range(4, 8)}));
  EXPECT_EQ(plan.reasons.at(0), "`numa`: each part of the weights is placed by the thread that reads it");
}

TEST(ThreadPlan, NumactlLeavesThePlacesToTheMask) {
  const Topology topology = Topology::from_synthetic("package:2 numa:1 core:4 pu:1");
  ThreadRequest request;
  parse_numa("numactl", request);
  const ThreadPlan both = plan_threads(topology, all_of(topology), request);
  EXPECT_EQ(both.threads, 8);
  EXPECT_TRUE(both.cpus.empty()) << "not kept to nodes";
  const ThreadPlan one = plan_threads(topology, {.allowed = range(4, 8)}, request);
  EXPECT_EQ(one.threads, 4);
  ASSERT_EQ(one.warnings.size(), 1U);
  EXPECT_EQ(one.warnings[0], "`numa` changes nothing: this process may use the CPUs of one node only");
}

TEST(ThreadPlan, NumaOnOneNodeSaysThatItChangesNothing) {
  const Topology topology = Topology::from_synthetic("package:1 core:4 pu:1");
  for (const char* mode : {"distribute", "isolate", "numactl"}) {
    ThreadRequest request;
    parse_numa(mode, request);
    const ThreadPlan plan = plan_threads(topology, all_of(topology), request);
    EXPECT_EQ(plan.threads, 4);
    ASSERT_EQ(plan.warnings.size(), 1U);
    EXPECT_EQ(plan.warnings[0], "`numa` changes nothing: this machine has one NUMA node");
  }
}

TEST(ThreadRequest, BadThreadCountsAreUsageErrors) {
  EXPECT_EQ(message_of([] { parse_thread_count("0", "`threads`"); }),
            "`threads`: 0 threads cannot work; give 1 or more, or leave it out for the default");
  EXPECT_EQ(message_of([] { parse_thread_count("-1", "`threads`"); }),
            "`threads`: -1 threads cannot work; give 1 or more, or leave it out for the default");
  for (const char* text : {"abc", "", "4x", "1.5", "99999999999999999999"}) {
    EXPECT_NE(message_of([&] { parse_thread_count(text, "`threads`"); }).find("is not a number of threads"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(parse_thread_count("100000", "`threads`"), 100'000);
  EXPECT_EQ(parse_thread_count(" 4 ", "`threads`"), 4);
}

TEST(ThreadRequest, BadAffinityAndNumaAreUsageErrors) {
  ThreadRequest request;
  for (const char* text : {"", "fast", "0-", "3-1", "0,,2", "1;2", "0-99999999"}) {
    EXPECT_NE(message_of([&] { parse_affinity(text, request); }), "no error") << text;
  }
  EXPECT_NE(message_of([&] { parse_numa("near", request); }), "no error");
}

TEST(ThreadRequest, EnvironmentIsAskedInOrder) {
  const auto resolve = [](std::optional<int> flag, auto environment) {
    ThreadRequest request{.threads = flag};
    apply_environment(request, environment);
    return request.threads;
  };
  constexpr auto kBoth = [](const char* name) -> const char* {
    return std::string(name) == "INFERNO_THREADS" ? "3" : "5";
  };
  constexpr auto kOmpList = [](const char* name) -> const char* {
    return std::string(name) == "OMP_NUM_THREADS" ? "6,2" : nullptr;
  };
  constexpr auto kOmpNonsense = [](const char* name) -> const char* {
    return std::string(name) == "OMP_NUM_THREADS" ? "many" : nullptr;
  };
  EXPECT_EQ(resolve(7, +kBoth), 7) << "the request wins";
  EXPECT_EQ(resolve(std::nullopt, +kBoth), 3);
  EXPECT_EQ(resolve(std::nullopt, +kOmpList), 6);
  EXPECT_EQ(resolve(std::nullopt, +kOmpNonsense), std::nullopt);
  constexpr auto kBad = [](const char*) -> const char* { return "none"; };
  ThreadRequest request;
  EXPECT_NE(message_of([&] { apply_environment(request, +kBad); }).find("INFERNO_THREADS"), std::string::npos);
}

// Four performance cores and two efficiency cores, one cache for each three cores, threads placed by the system.
struct AppleLaptop {
  Topology topology = Topology::from_levels({{.cores = 4, .cores_per_cache = 3}, {.cores = 2}});
  CpuLimits limits{.allowed = range(0, 6), .quota = std::nullopt, .current_cpu = 0, .can_pin = false};
};

TEST(Topology, LevelsAreOnePackageWithTheFastestCoresFirst) {
  const Topology topology = AppleLaptop().topology;
  EXPECT_EQ(topology.packages, 1);
  EXPECT_EQ(topology.nodes, 1);
  EXPECT_EQ(topology.cores, 6);
  EXPECT_EQ(topology.l3_groups, 3);
  EXPECT_TRUE(topology.hybrid);
  std::vector<int> caches;
  std::vector<bool> performance;
  for (const Cpu& cpu : topology.cpus) {
    caches.push_back(cpu.l3);
    performance.push_back(cpu.performance);
  }
  EXPECT_EQ(caches, (std::vector{0, 0, 0, 1, 2, 2}));
  EXPECT_EQ(performance, (std::vector{true, true, true, true, false, false}));
  EXPECT_FALSE(Topology::from_levels({{.cores = 8}}).hybrid);
}

TEST(ThreadPlan, WithoutPinningTheDefaultIsOneThreadPerPerformanceCore) {
  const AppleLaptop mac;
  const ThreadPlan plan = plan_threads(mac.topology, mac.limits, {});
  EXPECT_EQ(plan.threads, 4);
  EXPECT_TRUE(plan.cpus.empty()) << "the system would refuse";
  EXPECT_FALSE(plan.uneven) << "all threads fit the performance cores";
  EXPECT_TRUE(plan.warnings.empty());
}

TEST(ThreadPlan, WithoutPinningMoreThreadsThanPerformanceCoresAreUneven) {
  const AppleLaptop mac;
  const ThreadPlan plan = plan_threads(mac.topology, mac.limits, {.threads = 6, .threads_origin = "`threads`"});
  EXPECT_EQ(plan.threads, 6);
  EXPECT_TRUE(plan.uneven);
}

TEST(ThreadPlan, WithoutPinningARequestToPinIsAWarning) {
  const AppleLaptop mac;
  ThreadRequest request;
  request.affinity = Affinity::compact;
  const ThreadPlan plan = plan_threads(mac.topology, mac.limits, request);
  EXPECT_TRUE(plan.cpus.empty());
  ASSERT_EQ(plan.warnings.size(), 1U);
  EXPECT_NE(plan.warnings[0].find("`affinity` changes nothing"), std::string::npos);
}

TEST(CpuList, RoundTrips) {
  EXPECT_EQ(parse_cpu_list("0-2,8, 5", "x"), (std::vector{0, 1, 2, 8, 5}));
  EXPECT_EQ(format_cpu_list({8, 0, 1, 2, 5}), "0-2,5,8");
  EXPECT_EQ(format_cpu_list({}), "none");
}

TEST(Drawing, ShowsTheMachineTheThreadsAndWhy) {
  const Topology topology = Topology::from_synthetic("package:2 numa:1 l3:1(size=33554432) core:2 pu:2");
  CpuLimits limits{.allowed = {0, 1, 2, 3, 4, 5, 6}, .quota = 3.5};
  const ThreadPlan plan = plan_threads(topology, limits, {});
  EXPECT_EQ(draw_thread_plan(topology, limits, plan),
            "machine: 2 packages, 2 NUMA nodes, 2 L3 groups of 32.0 MiB, 4 cores, 8 CPUs\n"
            "  package 0  node 0  L3 0  [0 1] [2 3]\n"
            "  package 1  node 1  L3 1  [4 5] [6 7x]\n"
            "  x = closed to this process (affinity mask or cpuset)\n"
            "may use: CPUs 0-6, quota 3.50 CPUs\n"
            "  3 threads: 4 usable physical cores (4 on this machine), limited to 3 by a control group quota of 3.50 "
            "CPUs\n"
            "  kept to their part of 2 NUMA nodes\n"
            "  threads 0-1 on CPUs 0-3\n"
            "  thread 2 on CPUs 4-6\n");
}

}  // namespace
}  // namespace inferno
