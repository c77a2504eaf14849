// Dividing work among threads: fixed contiguous slices, or chunks handed out on demand.
//
// Which thread computes an element never changes its value here; it changes only who touches which cache line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>

#include "base/checked.h"
#include "threading/wait.h"

namespace inferno {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  [[nodiscard]] constexpr int64_t size() const { return end - begin; }
  [[nodiscard]] constexpr bool empty() const { return begin >= end; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

// Slice ith of nth of the elements 0 ... count-1. Together the slices cover every element once, in order; inner
// boundaries are multiples of step; sizes differ by at most one step (the last slice may also be cut short by count).
[[nodiscard]] constexpr Range slice(int64_t count, int ith, int nth, int64_t step = 1) {
  const int64_t steps = ceil_div(count, step);
  const int64_t base = steps / nth;
  const int64_t rest = steps % nth;
  const int64_t first = ith * base + std::min<int64_t>(ith, rest);
  const int64_t last = first + base + (ith < rest ? 1 : 0);
  return {std::min(first * step, count), std::min(last * step, count)};
}

// The smallest multiple of a kernel's step whose boundaries are also cache line boundaries of an output of elements of
// element_bytes each (in a buffer that starts on a line), so that no two threads write one line.
[[nodiscard]] constexpr int64_t cache_line_step(int64_t kernel_step, int64_t element_bytes) {
  const auto line = static_cast<int64_t>(kCacheLine);
  return std::lcm(kernel_step, line / std::gcd(line, element_bytes));
}

// Chunks of 0 ... count-1, handed out with one fetch_add each, for cores of different speed. One thread calls reset()
// before the dispatch, or before a barrier; then each thread takes chunks until it gets an empty one.
class ChunkQueue {
 public:
  // Few enough that the counter is cold, enough that a core of half the speed delays the end by an eighth or less.
  static constexpr int kChunksPerThread = 6;

  void reset(int64_t count, int nth, int64_t step = 1, int chunks_per_thread = kChunksPerThread) {
    count_ = count;
    chunk_ = std::max(step, round_up(ceil_div(count, int64_t{nth} * chunks_per_thread), step));
    next_.store(0, std::memory_order_relaxed);
  }

  [[nodiscard]] Range take() {
    const int64_t begin = next_.fetch_add(chunk_, std::memory_order_relaxed);
    return begin >= count_ ? Range{count_, count_} : Range{begin, std::min(begin + chunk_, count_)};
  }

 private:
  alignas(kHotLine) std::atomic<int64_t> next_{0};
  alignas(kHotLine) int64_t count_ = 0;
  int64_t chunk_ = 1;
};

}  // namespace inferno
