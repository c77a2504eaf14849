// What this machine can do at most: reading memory, by how much of it is read over and over, and multiplying, by type.
//
// Measured once per thread count (about two seconds) and kept in a file in the user's cache folder, together with what
// CPU it was measured on. Benchmarks, profiles and plans show their figures as shares of these.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/op_cost.h"

namespace inferno {

struct ReadBandwidth {
  double working_set = 0;  // bytes, all threads together
  double gb_per_s = 0;     // the best of one, two and four streams per thread
  int streams = 0;         // that many were best
};

struct MachineLimits {
  std::string cpu;
  int threads = 1;
  std::vector<ReadBandwidth> read;                   // ascending by working set; the last comes from DRAM
  std::array<double, kMultiplyKinds> multiply = {};  // 10^9 operations per second

  // Limits of a machine nobody has measured (a device) are empty.
  [[nodiscard]] bool known() const { return !read.empty(); }
  // Between measured sizes: on a straight line over the size's logarithm.
  [[nodiscard]] double read_gb_per_s(double working_set) const;
  [[nodiscard]] double multiply_gop_per_s(Multiply kind) const { return multiply[static_cast<size_t>(kind)]; }
  // The least time an op can take here: the slower of moving its bytes and doing its operations; 0 when not known.
  [[nodiscard]] double least_us(const OpCost& cost, double working_set) const;
};

// Runs the measurement now.
[[nodiscard]] MachineLimits measure_machine_limits(int threads);
// From the file, or measured now and written there. An unwritable cache folder is no error.
[[nodiscard]] MachineLimits machine_limits(int threads);
// $XDG_CACHE_HOME/inferno/limits.json, or under $HOME/.cache; empty when neither variable is set.
[[nodiscard]] std::string machine_limits_file();

}  // namespace inferno
