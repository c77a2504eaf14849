// The ways to run a function on several threads that threading_bench compares. Each returns `count` samples
// in nanoseconds; an empty result means that this build does not have the contestant.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace inferno::bench {

struct Contestant {
  std::string name;
  // One sample = one empty dispatch on all threads and its join.
  std::function<std::vector<double>(int threads, int count)> dispatch;
  // One sample = one barrier, timed on thread 0.
  std::function<std::vector<double>(int threads, int count)> barrier;
  // Divides the number of samples, for contestants that are much slower.
  int cost = 1;
};

[[nodiscard]] std::vector<Contestant> all_contestants();

}  // namespace inferno::bench
