// This machine's limits: read bandwidth by working set size, and multiply throughput by type.
//
// Measured once per thread count (about two seconds) and stored in the user's cache folder, together with the CPU they
// were measured on. Benchmarks, profiles and plans show their figures as shares of these.
//
// Other programs can only make a measurement too low, so the best of several measurements of a figure counts. Limits
// measured while others used the CPUs are marked as disturbed and measured again next time; a run that is faster than
// its limit triggers a new measurement immediately.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/op_cost.h"

namespace inferno {

struct ReadBandwidth {
  double working_set = 0;  // bytes, all threads together
  double gb_per_s = 0;     // the best of one, two and four streams per thread
  int streams = 0;         // the best number of streams
};

struct MachineLimits {
  std::string cpu;  // model and number
  std::string isa;  // instruction sets
  int threads = 1;
  int measurements = 1;                              // number of measurements these are the best of
  bool disturbed = false;                            // other programs ran during all of them
  std::vector<ReadBandwidth> read;                   // ascending by working set; the last comes from DRAM
  std::array<double, kMultiplyKinds> multiply = {};  // 10^9 operations per second

  // Limits of a machine that was not measured (a device) are empty.
  [[nodiscard]] bool known() const { return !read.empty(); }
  // Between measured sizes: interpolated linearly in the logarithm of the size.
  [[nodiscard]] double read_gb_per_s(double working_set) const;
  [[nodiscard]] double multiply_gop_per_s(Multiply kind) const { return multiply[static_cast<size_t>(kind)]; }
  // The least time an op can take here: the slower of moving its bytes and doing its operations; 0 when not known.
  // Weights and cache come from where the working set is, activations from the nearest cache.
  [[nodiscard]] double least_us(const OpCost& cost, double working_set) const;
};

// The CPU's model and the number of CPUs.
[[nodiscard]] std::string cpu_name();
// Its instruction sets, in one line.
[[nodiscard]] std::string cpu_isa();
// Runs the measurement now.
[[nodiscard]] MachineLimits measure_machine_limits(int threads);
// The best of each figure.
[[nodiscard]] MachineLimits better_of(const MachineLimits& a, const MachineLimits& b);

enum class Remeasure : uint8_t {
  when_needed,  // not in the file, or disturbed there
  keep_best,    // now; better stored figures are kept
  afresh        // now; stored figures are discarded
};
// From the file, or measured now and written there. An unwritable cache folder is no error. Tests pass their own
// measurement.
[[nodiscard]] MachineLimits machine_limits(int threads, Remeasure again = Remeasure::when_needed,
                                           MachineLimits (*measure)(int threads) = measure_machine_limits);
// Of the machine a backend runs on: its device's, measured now, or this computer's. Empty when neither is known.
[[nodiscard]] MachineLimits limits_of(Backend& backend);
// limits.json in cache_folder(); empty when there is none.
[[nodiscard]] std::string machine_limits_file();

}  // namespace inferno
