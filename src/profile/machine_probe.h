// Loops that measure what some threads of this machine can do right now: reading memory and multiplying.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "backend/op_cost.h"
#include "threading/partition.h"
#include "threading/thread_pool.h"

namespace inferno {

class MachineProbe {
 public:
  // Throws when there is no memory for largest_set bytes; each thread writes its share of them.
  MachineProbe(int threads, double largest_set);

  [[nodiscard]] int threads() const { return pool_.threads(); }

  // GB/s of reading working_set bytes over and over, each thread its share in 1, 2 or 4 distant streams. `iterations`
  // (1 at first) grows until a run is long enough to be timed, and is reused by the next call.
  [[nodiscard]] double read(double working_set, int streams, int64_t& iterations);
  // 10^9 operations per second.
  [[nodiscard]] double multiply(Multiply kind, int64_t& iterations);

 private:
  struct alignas(128) Result {
    volatile uint64_t value = 0;  // keeps the reads alive
    double operations = 0;
  };
  struct FreeAligned {
    void operator()(std::byte* data) const;
  };

  [[nodiscard]] Range share(int ith) const { return slice(bytes_, ith, threads(), 4096); }
  template <typename F>
  void each(F work);

  ThreadPool pool_;
  std::unique_ptr<std::byte, FreeAligned> memory_;
  int64_t bytes_ = 0;
  std::vector<Result> results_;
};

}  // namespace inferno
