#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/text.h"
#include "profile/machine_limits.h"
#include "profile/machine_probe.h"
#include "threading/thread_plan.h"
#include "threading/topology.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMib = 1024.0 * 1024.0;
// From what fits the L2 caches to what fits none: three times the last-level caches, because part of a set that is read
// repeatedly stays in a cache of half its size. With large caches, also just above their size: bandwidth drops there
// abruptly, not along a line from what fits to what does not.
std::vector<double> working_sets() {
  constexpr double kMost = 2048 * kMib;
  const Topology topology = Topology::detect();
  const double caches = static_cast<double>(topology.l3_bytes) * std::max(topology.l3_groups, 1);
  std::vector<double> sets = {4 * kMib, 12 * kMib, 20 * kMib, 32 * kMib, 64 * kMib, 256 * kMib};
  for (const double times : {1.25, 3.0}) {
    const double set = std::min(std::ceil(times * caches / (64 * kMib)) * 64 * kMib, kMost);
    if (set > sets.back()) sets.push_back(set);
  }
  return sets;
}
constexpr int kRounds = 4;  // the best counts: anything else on the machine only slows it down

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// CPU time used so far, in seconds: by all processes and by this one.
struct CpuTime {
  double all = 0;
  double own = 0;
  int cpus = 0;  // of the machine; 0: not known
};

CpuTime cpu_time() {
  constexpr double kTicksPerSecond = 100;  // USER_HZ, part of the interface
  CpuTime time;
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    if (line[3] != ' ') {
      ++time.cpus;
      continue;
    }
    std::istringstream fields(line.substr(4));
    double ticks = 0;
    for (int i = 0; i < 8 && fields >> ticks; ++i) {
      const bool idle = i == 3 || i == 4;
      if (!idle) time.all += ticks / kTicksPerSecond;
    }
  }
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  for (const timeval& part : {usage.ru_utime, usage.ru_stime}) {
    time.own += static_cast<double>(part.tv_sec) + static_cast<double>(part.tv_usec) / 1e6;
  }
  return time;
}

// Whether other processes used more than a twentieth of the machine in between.
bool was_disturbed(const CpuTime& before, const CpuTime& after, double seconds) {
  constexpr double kMuch = 0.05;
  const double others = (after.all - before.all) - (after.own - before.own);
  return after.cpus > 0 && others > kMuch * after.cpus * seconds;
}

}  // namespace

std::string cpu_isa() {
  return fmt::format("{}", fmt::join(cpu_feature_names(), " "));
}

MachineLimits measure_machine_limits(int threads) {
  const CpuTime before = cpu_time();
  const Clock::time_point begin = Clock::now();
  const std::vector<double> sets = working_sets();
  MachineProbe probe(threads, sets.back());
  MachineLimits limits{.cpu = cpu_name(), .isa = cpu_isa(), .threads = threads};
  for (const double working_set : sets) limits.read.push_back({.working_set = working_set});
  // In rounds over everything, so that a short disturbance spoils each figure once at most.
  std::map<std::pair<size_t, int>, int64_t> iterations;
  const auto turns_of = [&](size_t item, int variant) -> int64_t& {
    return iterations.try_emplace({item, variant}, 1).first->second;
  };
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < limits.read.size(); ++i) {
      ReadBandwidth& best = limits.read[i];
      for (const int streams : {1, 2, 4}) {
        const double speed = probe.read(best.working_set, streams, turns_of(i, streams));
        if (speed > best.gb_per_s) {
          best.gb_per_s = speed;
          best.streams = streams;
        }
      }
    }
    for (size_t kind = 0; kind < limits.multiply.size(); ++kind) {
      double& best = limits.multiply[kind];
      best = std::max(
          best, probe.multiply(static_cast<Multiply>(kind), turns_of(limits.read.size(), static_cast<int>(kind))));
    }
  }
  limits.disturbed = was_disturbed(before, cpu_time(), seconds_since(begin));
  return limits;
}

}  // namespace inferno
