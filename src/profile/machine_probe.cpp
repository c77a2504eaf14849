#include "profile/machine_probe.h"

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "profile/peak_loops.h"

namespace inferno {
namespace {

constexpr double kShortestRun = 0.012;  // seconds; shorter runs measure the clock

using Vector = uint64_t __attribute__((vector_size(16), may_alias));

// Reads `bytes` from `data` as kStreams interleaved streams from distant parts.
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

// Amount per second / 10^9; run(iterations) returns the amount done.
template <typename F>
double speed(int64_t& iterations, F run) {
  using Clock = std::chrono::steady_clock;
  for (;; iterations *= 2) {
    const Clock::time_point begin = Clock::now();
    const double amount = run(iterations);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds >= kShortestRun || iterations >= (int64_t{1} << 40)) return amount / seconds / 1e9;
  }
}

}  // namespace

void MachineProbe::FreeAligned::operator()(std::byte* data) const {
  std::free(data);
}

template <typename F>
void MachineProbe::each(F work) {
  pool_.dispatch([](int ith, int, void* context) { (*static_cast<F*>(context))(ith); }, &work);
}

MachineProbe::MachineProbe(int threads, double largest_set)
    : pool_({.threads = threads}), results_(static_cast<size_t>(pool_.threads())) {
  bytes_ = static_cast<int64_t>(largest_set);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(bytes_))));
  if (!memory_) fail("out of memory while measuring the machine's limits");
  each([&](int ith) {
    const Range range = share(ith);
    std::memset(memory_.get() + range.begin, 1, static_cast<size_t>(range.size()));
  });
}

double MachineProbe::read(double working_set, int streams, int64_t& iterations) {
  bytes_ = static_cast<int64_t>(working_set);
  return speed(iterations, [&](int64_t count) {
    each([&](int ith) {
      const Range range = share(ith);
      uint64_t sum = 0;
      for (int64_t t = 0; t < count; ++t) {
        const std::byte* data = memory_.get() + range.begin;
        if (streams == 1) sum += read_streams<1>(data, range.size());
        if (streams == 2) sum += read_streams<2>(data, range.size());
        if (streams == 4) sum += read_streams<4>(data, range.size());
      }
      results_[static_cast<size_t>(ith)].value = sum;
    });
    return static_cast<double>(bytes_) * static_cast<double>(count);
  });
}

double MachineProbe::multiply(Multiply kind, int64_t& iterations) {
  return speed(iterations, [&](int64_t count) {
    each([&](int ith) { results_[static_cast<size_t>(ith)].operations = run_multiply_loop(kind, count * 10000); });
    double operations = 0;
    for (const Result& result : results_) operations += result.operations;
    return operations;
  });
}

}  // namespace inferno
