// Statistics of a thread pool: always on, a few nanoseconds per dispatch, no line shared between threads.
//
// Each thread adds to its own counters; stats() of the pool sums them at any time. Costs are keyed by a small "op"
// number whose meaning is up to the caller of the pool.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "threading/wait.h"

namespace inferno {

// Op numbers are 0 ... kPoolOps-1; larger ones share the last.
inline constexpr int kPoolOps = 64;

// One op's row, summed over all threads. Times in nanoseconds.
struct PoolOpStats {
  int op = 0;
  uint64_t dispatches = 0;  // all, those on one thread included; only the others have times
  uint64_t wakes = 0;       // a worker picked up a dispatch
  double wake_ns = 0;       // mean time from the dispatch to a worker's first instruction
  double wake_max_ns = 0;
  uint64_t barriers = 0;       // barriers passed, counted once per thread
  double barrier_wait_ns = 0;  // mean wait of one thread at one barrier
  // Share of the threads' time spent waiting at the join for the slowest: 0 = all finish together.
  double imbalance = 0;
};

struct PoolStats {
  int threads = 0;
  std::vector<PoolOpStats> ops;  // only those that occurred, ascending by op
};

// Aligned text table; names[op] labels a row where there is one.
[[nodiscard]] std::string format_pool_stats(const PoolStats& stats, std::span<const std::string_view> names = {});

// One thread's counters. Only the owner writes (relaxed load and store), so reading at any time is safe and wait-free;
// reset() is for when no dispatch is running.
class ThreadStats {
 public:
  // A dispatch seen from a worker: ticks from its start to this thread's first and last instruction of it.
  void add_work(int op, uint64_t wake_ticks, uint64_t finish_ticks) {
    Op& row = ops_[index(op)];
    add(row.wakes, 1);
    add(row.wake_ticks, wake_ticks);
    if (wake_ticks > row.wake_max.load(std::memory_order_relaxed)) {
      row.wake_max.store(wake_ticks, std::memory_order_relaxed);
    }
    add(row.finish_ticks, finish_ticks);
  }
  // The same seen from the caller; span = time until all were done, times the number of threads.
  void add_dispatch(int op, uint64_t finish_ticks, uint64_t span_ticks) {
    Op& row = ops_[index(op)];
    add(row.dispatches, 1);
    add(row.finish_ticks, finish_ticks);
    add(row.span_ticks, span_ticks);
  }
  void add_direct_call(int op) { add(ops_[index(op)].dispatches, 1); }
  void add_barrier(int op, uint64_t wait_ticks) {
    Op& row = ops_[index(op)];
    add(row.barriers, 1);
    add(row.barrier_ticks, wait_ticks);
  }
  void reset();

 private:
  friend PoolStats sum_stats(std::span<const ThreadStats> threads, double ticks_per_ns);
  using Counter = std::atomic<uint64_t>;
  struct alignas(kCacheLine) Op {
    Counter dispatches{0}, wakes{0}, wake_ticks{0}, wake_max{0}, finish_ticks{0}, span_ticks{0}, barriers{0},
        barrier_ticks{0};
  };

  static size_t index(int op) { return static_cast<size_t>(op < 0 || op >= kPoolOps ? kPoolOps - 1 : op); }
  static void add(Counter& counter, uint64_t amount) {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }

  alignas(kHotLine) std::array<Op, kPoolOps> ops_;
};

[[nodiscard]] PoolStats sum_stats(std::span<const ThreadStats> threads, double ticks_per_ns);

}  // namespace inferno
