// Timing and checking shared by the ladders.
#pragma once

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace inferno::ladder {

// The minimum CPU time of many short runs: the least noise on a busy machine.
template <typename F>
double min_seconds(int runs, F f) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  double least = INFINITY;
  for (int i = 0; i < runs; ++i) {
    const double start = now();
    f();
    least = std::min(least, now() - start);
  }
  return least;
}

class Random {
 public:
  uint32_t next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>(state_ >> 33);
  }

 private:
  uint64_t state_ = 1;
};

inline bool same(const std::vector<float>& got, const std::vector<float>& want) {
  return std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) == 0;
}

}  // namespace inferno::ladder
