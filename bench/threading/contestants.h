// The ways to run a function on several threads that threading_bench compares. Each takes `count` samples and returns
// them in nanoseconds; an empty result means that this build does not have the contestant.
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
  // Divides the number of samples where one costs far more than elsewhere.
  int cost = 1;
};

[[nodiscard]] std::vector<Contestant> all_contestants();

}  // namespace inferno::bench
