// Timing for test programs: medians of repeated runs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace inferno::testing {

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median seconds of one call: at least `runs` calls, and more until `least_total` seconds have passed. Callers warm up
// with one call.
template <typename Call>
double median_seconds(int runs, double least_total, Call call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  const Clock::time_point begin = Clock::now();
  Clock::time_point last = begin;
  while (static_cast<int>(seconds.size()) < runs || std::chrono::duration<double>(last - begin).count() < least_total) {
    const Clock::time_point start = Clock::now();
    call();
    last = Clock::now();
    seconds.push_back(std::chrono::duration<double>(last - start).count());
  }
  return median(std::move(seconds));
}

}  // namespace inferno::testing
