// What an op's code sees while it runs on the CPU: which share of the work is its own, the kernels, and scratch memory.
//
// Every worker runs the same function over the same args; each takes its slice, and barrier() stands between phases
// that read what others wrote. All workers call barrier() equally often. The step puts a barrier after every op.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/kernel_table.h"
#include "threading/partition.h"
#include "threading/thread_pool.h"

namespace inferno {

struct Worker {
  int ith = 0;
  int nth = 1;
  const KernelTable* kernels = nullptr;
  std::byte* shared = nullptr;  // one for all workers, 64-byte aligned, the op's OpScratch::shared bytes
  std::byte* local = nullptr;   // this worker's own, OpScratch::local bytes
  ThreadPool* pool = nullptr;   // null with one thread
  // [nth], for what the threads of an op share as they get done; null when each keeps to its slice.
  ChunkCounts* counts = nullptr;
  // Where waits inside an op are added up; null when nobody asked.
  uint64_t* wait_ticks = nullptr;

  void barrier() const noexcept {
    if (nth == 1) return;
    const uint64_t begin = wait_ticks != nullptr ? cpu_ticks() : 0;
    pool->barrier();
    if (wait_ticks != nullptr) *wait_ticks += cpu_ticks() - begin;
  }
  // This worker's share of n items, cut at multiples of `step`; shares differ by at most one step.
  [[nodiscard]] Range slice(int64_t n, int64_t step = 1) const { return inferno::slice(n, ith, nth, step); }
  // Calls f with ranges that together, over all workers, are 0 ... n-1: one slice for each worker, or chunks of at
  // least `least` as workers get done. An op uses each queue once.
  template <typename F>
  void for_share(int queue, int64_t n, int64_t step, int64_t least, F f) const {
    // A slice of a single chunk is not worth looking for.
    if (counts != nullptr && n >= 2 * nth * std::max(step, least)) {
      for_shared_chunks(counts, queue, n, ith, nth, step, least, f);
    } else if (const Range range = slice(n, step); !range.empty()) {
      f(range);
    }
  }
  // The next of the items 0, 1, 2, ... that this worker is to do after `last` (first: -1): every nth one, or whichever
  // nobody has taken yet.
  [[nodiscard]] int64_t next_item(int queue, int64_t last) const {
    if (counts == nullptr) return last < 0 ? ith : last + nth;
    return counts[0].taken[queue].fetch_add(1, std::memory_order_relaxed);
  }
  // The same as slice() when the work is worth sharing, else all of it on worker 0.
  [[nodiscard]] Range slice_if(bool parallel, int64_t n, int64_t step = 1) const {
    if (parallel) return slice(n, step);
    return ith == 0 ? Range{0, n} : Range{};
  }
};

// Scratch memory an op needs while it runs.
struct OpScratch {
  int64_t shared = 0;
  int64_t local = 0;
};

}  // namespace inferno
