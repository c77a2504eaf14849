#include "profile/machine_limits.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "profile/peak_loops.h"
#include "threading/partition.h"
#include "threading/thread_plan.h"
#include "threading/thread_pool.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr double kMib = 1024.0 * 1024.0;
// From what fits the second-level caches to what fits none.
constexpr double kWorkingSets[] = {4 * kMib, 12 * kMib, 20 * kMib, 32 * kMib, 64 * kMib, 256 * kMib};
constexpr double kShortestRun = 0.012;  // seconds; shorter runs measure the clock
constexpr int kRepeats = 4;             // the best counts: anything else on the machine only slows it down
constexpr int kFileVersion = 1;

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
  explicit Measurement(int threads) : pool_({.threads = threads}) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(kWorkingSets[5]))));
    if (!memory_) fail("out of memory while measuring the machine's limits");
    bytes_ = static_cast<int64_t>(kWorkingSets[5]);
    each([&](int ith) {
      const Range range = share(ith);
      std::memset(memory_.get() + range.begin, 1, static_cast<size_t>(range.size()));
    });
  }

  [[nodiscard]] int threads() const { return pool_.threads(); }

  [[nodiscard]] double read(double working_set, int streams) {
    bytes_ = static_cast<int64_t>(working_set);
    return best([&](int64_t turns) {
      each([&](int ith) {
        const Range range = share(ith);
        uint64_t sum = 0;
        for (int64_t t = 0; t < turns; ++t) {
          const std::byte* data = memory_.get() + range.begin;
          if (streams == 1) sum += read_streams<1>(data, range.size());
          if (streams == 2) sum += read_streams<2>(data, range.size());
          if (streams == 4) sum += read_streams<4>(data, range.size());
        }
        sums_[ith].value = sum;
      });
      return static_cast<double>(bytes_) * static_cast<double>(turns);
    });
  }

  [[nodiscard]] double multiply(Multiply kind) {
    return best([&](int64_t turns) {
      each([&](int ith) { sums_[ith].operations = run_multiply_loop(kind, turns * 10000); });
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

  // Amount per second / 10^9 of the best repeat; run(turns) returns the amount done.
  template <typename F>
  double best(F run) {
    int64_t turns = 1;
    double most = 0;
    for (int repeat = 0; repeat < kRepeats;) {
      const Clock::time_point begin = Clock::now();
      const double amount = run(turns);
      const double seconds = seconds_since(begin);
      if (seconds < kShortestRun && turns < (int64_t{1} << 40)) {
        turns *= 2;
        continue;
      }
      most = std::max(most, amount / seconds / 1e9);
      ++repeat;
    }
    return most;
  }

  ThreadPool pool_;
  std::unique_ptr<std::byte, FreeAligned> memory_;
  int64_t bytes_ = 0;
  std::vector<Result> sums_ = std::vector<Result>(kMost);
};

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

Json to_json(const MachineLimits& limits) {
  Json read = Json::array();
  for (const ReadBandwidth& r : limits.read) read.push_back({r.working_set, r.gb_per_s, r.streams});
  return {{"cpu", limits.cpu}, {"threads", limits.threads}, {"read", read}, {"multiply", limits.multiply}};
}

MachineLimits from_json(const Json& json) {
  MachineLimits limits;
  limits.cpu = json.at("cpu").get<std::string>();
  limits.threads = json.at("threads").get<int>();
  for (const Json& r : json.at("read")) limits.read.push_back({r.at(0), r.at(1), r.at(2)});
  limits.multiply = json.at("multiply").get<std::array<double, kMultiplyKinds>>();
  if (limits.read.empty()) throw std::runtime_error("no read bandwidth");
  for (const ReadBandwidth& r : limits.read) {
    if (!(r.gb_per_s > 0) || !(r.working_set > 0)) throw std::runtime_error("no read bandwidth");
  }
  for (const double peak : limits.multiply) {
    if (!(peak > 0)) throw std::runtime_error("no multiply peak");
  }
  return limits;
}

// All entries of the file that can be used; a missing or damaged file has none.
std::vector<MachineLimits> read_file(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 20;
  std::vector<MachineLimits> entries;
  try {
    const Json json = Json::parse(read_text(path, kMostBytes));
    if (json.at("version") != kFileVersion) return {};
    for (const Json& entry : json.at("limits")) entries.push_back(from_json(entry));
  } catch (const std::exception& error) {
    log(LogLevel::debug, "machine limits will be measured: {}", error.what());
    return {};
  }
  return entries;
}

void write_file(const std::string& path, const std::vector<MachineLimits>& entries) {
  Json json = {{"version", kFileVersion}, {"limits", Json::array()}};
  for (const MachineLimits& entry : entries) json["limits"].push_back(to_json(entry));
  const std::string folder = path.substr(0, path.find_last_of('/'));
  ::mkdir(folder.substr(0, folder.find_last_of('/')).c_str(), 0755);
  ::mkdir(folder.c_str(), 0755);
  try {
    AtomicOutputFile file(path);
    file.write(json.dump(1));
    file.commit();
  } catch (const Error& error) {
    log(LogLevel::debug, "machine limits are not kept: {}", error.what());
  }
}

}  // namespace

double MachineLimits::read_gb_per_s(double working_set) const {
  if (working_set <= read.front().working_set) return read.front().gb_per_s;
  for (size_t i = 1; i < read.size(); ++i) {
    const ReadBandwidth& a = read[i - 1];
    const ReadBandwidth& b = read[i];
    if (working_set > b.working_set) continue;
    const double part = std::log(working_set / a.working_set) / std::log(b.working_set / a.working_set);
    return a.gb_per_s + (b.gb_per_s - a.gb_per_s) * part;
  }
  return read.back().gb_per_s;
}

double MachineLimits::least_us(const OpCost& cost, double working_set) const {
  if (!known()) return 0;
  return std::max(cost.bytes() / read_gb_per_s(working_set), cost.operations / multiply_gop_per_s(cost.multiply)) / 1e3;
}

MachineLimits measure_machine_limits(int threads) {
  Measurement measurement(threads);
  MachineLimits limits{.cpu = cpu_name(), .threads = measurement.threads()};
  for (const double working_set : kWorkingSets) {
    ReadBandwidth result{.working_set = working_set};
    for (const int streams : {1, 2, 4}) {
      const double speed = measurement.read(working_set, streams);
      if (speed > result.gb_per_s) {
        result.gb_per_s = speed;
        result.streams = streams;
      }
    }
    limits.read.push_back(result);
  }
  for (int kind = 0; kind < kMultiplyKinds; ++kind) {
    limits.multiply[static_cast<size_t>(kind)] = measurement.multiply(static_cast<Multiply>(kind));
  }
  return limits;
}

MachineLimits machine_limits(int threads) {
  const std::string path = machine_limits_file();
  std::vector<MachineLimits> entries = path.empty() ? std::vector<MachineLimits>() : read_file(path);
  const std::string cpu = cpu_name();
  std::erase_if(entries, [&](const MachineLimits& entry) { return entry.cpu != cpu; });
  for (const MachineLimits& entry : entries) {
    if (entry.threads == threads) return entry;
  }
  MachineLimits limits = measure_machine_limits(threads);
  limits.threads = threads;
  entries.push_back(limits);
  if (!path.empty()) write_file(path, entries);
  return limits;
}

std::string machine_limits_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return fmt::format("{}/inferno/limits.json", cache);
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return fmt::format("{}/.cache/inferno/limits.json", home);
  return "";
}

}  // namespace inferno
