#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"
#include "base/text.h"
#include "profile/machine_limits.h"
#include "profile/peak_loops.h"
#include "threading/partition.h"
#include "threading/thread_plan.h"
#include "threading/thread_pool.h"
#include "threading/topology.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMib = 1024.0 * 1024.0;
// From what fits the second-level caches to what fits none: three times the last ones, because a set that is read over
// and over finds a part of itself in a cache of half its size.
std::vector<double> working_sets() {
  constexpr double kMost = 2048 * kMib;
  const Topology topology = Topology::detect();
  const double caches = static_cast<double>(topology.l3_bytes) * std::max(topology.l3_groups, 1);
  std::vector<double> sets = {4 * kMib, 12 * kMib, 20 * kMib, 32 * kMib, 64 * kMib, 256 * kMib};
  if (3 * caches > sets.back()) sets.push_back(std::min(std::ceil(3 * caches / (64 * kMib)) * 64 * kMib, kMost));
  return sets;
}
constexpr double kShortestRun = 0.012;  // seconds; shorter runs measure the clock
constexpr int kRounds = 4;              // the best counts: anything else on the machine only slows it down

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

using Vector = uint64_t __attribute__((vector_size(16), may_alias));

// Reads `bytes` from `data` as kStreams far-apart parts in turn.
template <int kStreams>
uint64_t read_streams(const std::byte* data, int64_t bytes) noexcept {
  constexpr int64_t kLine = 64;
  const int64_t part = bytes / kStreams / kLine * kLine;
  Vector sums[4] = {};
  for (int64_t i = 0; i < part; i += kLine) {
    for (int s = 0; s < kStreams; ++s) {
      const auto* line = reinterpret_cast<const Vector*>(data + s * part + i);
      for (int v = 0; v < 4; ++v) sums[v] += line[v];
    }
  }
  const Vector sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1];
}

struct FreeAligned {
  void operator()(std::byte* data) const { std::free(data); }
};

class Measurement {
 public:
  Measurement(int threads, double largest_set) : pool_({.threads = threads}) {
    bytes_ = static_cast<int64_t>(largest_set);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(bytes_))));
    if (!memory_) fail("out of memory while measuring the machine's limits");
    each([&](int ith) {
      const Range range = share(ith);
      std::memset(memory_.get() + range.begin, 1, static_cast<size_t>(range.size()));
    });
  }

  [[nodiscard]] int threads() const { return pool_.threads(); }

  [[nodiscard]] double read(double working_set, int streams, int64_t& turns) {
    bytes_ = static_cast<int64_t>(working_set);
    return speed(turns, [&](int64_t count) {
      each([&](int ith) {
        const Range range = share(ith);
        uint64_t sum = 0;
        for (int64_t t = 0; t < count; ++t) {
          const std::byte* data = memory_.get() + range.begin;
          if (streams == 1) sum += read_streams<1>(data, range.size());
          if (streams == 2) sum += read_streams<2>(data, range.size());
          if (streams == 4) sum += read_streams<4>(data, range.size());
        }
        sums_[ith].value = sum;
      });
      return static_cast<double>(bytes_) * static_cast<double>(count);
    });
  }

  [[nodiscard]] double multiply(Multiply kind, int64_t& turns) {
    return speed(turns, [&](int64_t count) {
      each([&](int ith) { sums_[ith].operations = run_multiply_loop(kind, count * 10000); });
      double operations = 0;
      for (int i = 0; i < threads(); ++i) operations += sums_[i].operations;
      return operations;
    });
  }

 private:
  static constexpr int kMost = 4096;
  struct alignas(128) Result {
    volatile uint64_t value = 0;  // keeps the reads alive
    double operations = 0;
  };

  [[nodiscard]] Range share(int ith) const { return slice(bytes_, ith, threads(), 4096); }

  template <typename F>
  void each(F work) {
    pool_.dispatch([](int ith, int, void* context) { (*static_cast<F*>(context))(ith); }, &work);
  }

  // Amount per second / 10^9; run(turns) returns the amount done. `turns` grows until a run is long enough, and is
  // kept for the next round.
  template <typename F>
  static double speed(int64_t& turns, F run) {
    for (;; turns *= 2) {
      const Clock::time_point begin = Clock::now();
      const double amount = run(turns);
      const double seconds = seconds_since(begin);
      if (seconds >= kShortestRun || turns >= (int64_t{1} << 40)) return amount / seconds / 1e9;
    }
  }

  ThreadPool pool_;
  std::unique_ptr<std::byte, FreeAligned> memory_;
  int64_t bytes_ = 0;
  std::vector<Result> sums_ = std::vector<Result>(kMost);
};

// CPU time spent so far, in seconds: by all programs and by this one.
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

// Whether other programs took more than a twentieth of the machine in between.
bool was_disturbed(const CpuTime& before, const CpuTime& after, double seconds) {
  constexpr double kMuch = 0.05;
  const double others = (after.all - before.all) - (after.own - before.own);
  return after.cpus > 0 && others > kMuch * after.cpus * seconds;
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string name;
  for (std::string line; std::getline(file, line);) {
    for (const char* key : {"model name", "CPU implementer", "CPU part", "CPU variant"}) {
      const size_t colon = line.find(':');
      if (line.starts_with(key) && colon != std::string::npos) {
        if (!name.empty()) name += ' ';
        name += trim(std::string_view(line).substr(colon + 1));
      }
    }
    if (line.empty() && !name.empty()) break;  // the first CPU speaks for all
  }
  return fmt::format("{}, {} CPUs", name.empty() ? "unknown" : name, available_cpu_count());
}

std::string cpu_isa() {
  return fmt::format("{}", fmt::join(cpu_feature_names(), " "));
}

MachineLimits measure_machine_limits(int threads) {
  const CpuTime before = cpu_time();
  const Clock::time_point begin = Clock::now();
  const std::vector<double> sets = working_sets();
  Measurement measurement(threads, sets.back());
  MachineLimits limits{.cpu = cpu_name(), .isa = cpu_isa(), .threads = threads};
  for (const double working_set : sets) limits.read.push_back({.working_set = working_set});
  // In rounds over everything, so that a short disturbance spoils each figure once at most.
  std::map<std::pair<size_t, int>, int64_t> turns;
  const auto turns_of = [&](size_t item, int variant) -> int64_t& {
    return turns.try_emplace({item, variant}, 1).first->second;
  };
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < limits.read.size(); ++i) {
      ReadBandwidth& best = limits.read[i];
      for (const int streams : {1, 2, 4}) {
        const double speed = measurement.read(best.working_set, streams, turns_of(i, streams));
        if (speed > best.gb_per_s) {
          best.gb_per_s = speed;
          best.streams = streams;
        }
      }
    }
    for (size_t kind = 0; kind < limits.multiply.size(); ++kind) {
      double& best = limits.multiply[kind];
      best = std::max(best, measurement.multiply(static_cast<Multiply>(kind),
                                                 turns_of(limits.read.size(), static_cast<int>(kind))));
    }
  }
  limits.disturbed = was_disturbed(before, cpu_time(), seconds_since(begin));
  return limits;
}

}  // namespace inferno
