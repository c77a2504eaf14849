// Dividing work among threads: fixed contiguous slices, whose chunks idle threads may steal.
//
// Which thread computes an element never changes its value, only which core touches which cache line.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <span>

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

// Per thread and queue: the number of chunks of the thread's slice that were claimed, by itself or by others, or the
// number of elements of a unit of results that were completed. Zeroed by its owner while no thread uses it.
struct alignas(kHotLine) ChunkCounts {
  static constexpr int kQueues = 8;
  std::atomic<uint32_t> claimed[kQueues] = {};

  void reset() {
    for (std::atomic<uint32_t>& count : claimed) count.store(0, std::memory_order_relaxed);
  }
};

// The first chunk of a slice is half of it, for long memory streams; smaller chunks follow, so that a thread of half
// the speed delays the end by at most an eighth of a slice, and by less in a long slice.
inline constexpr int64_t kChunksPerSlice = 5;  // at least, if the slice is long enough
inline constexpr int64_t kLongestRest = 256;
struct SliceChunks {
  Range slice;
  int64_t first;  // elements of the first chunk
  int64_t rest;   // of the others

  SliceChunks(Range part, int64_t step, int64_t least)
      : slice(part),
        first(round_up(std::max(ceil_div(part.size(), 2), least), step)),
        rest(round_up(std::max(std::min(ceil_div(part.size(), 8), kLongestRest), least), step)) {}
  // Chunk 0, 1, 2, ...; empty after the last.
  [[nodiscard]] Range chunk(uint32_t number) const {
    const int64_t begin = slice.begin + (number == 0 ? 0 : first + (number - 1) * rest);
    return {std::min(begin, slice.end), std::min(begin + (number == 0 ? first : rest), slice.end)};
  }
};

// Elements 0 ... count-1 that are cut at multiples of `step`.
struct Piece {
  int64_t count = 0;
  int64_t step = 1;
};

// Calls f(piece, range) for chunks of several pieces of work until the threads together have processed all of them: a
// thread first claims the chunks of its own slices, whose memory is near, then steals those of other threads. Chunks
// have at least `least` elements. Piece i uses queue + i; counts[nth] must be zero there before the first thread calls.
template <typename F>
void for_shared_chunks(ChunkCounts* counts, int queue, std::span<const Piece> pieces, int ith, int nth, int64_t least,
                       F f) {
  for (int i = 0; i < nth; ++i) {
    const int owner = ith + i < nth ? ith + i : ith + i - nth;
    for (size_t p = 0; p < pieces.size(); ++p) {
      const int64_t step = pieces[p].step;
      const SliceChunks chunks(slice(pieces[p].count, owner, nth, step), step, least);
      std::atomic<uint32_t>& claimed = counts[owner].claimed[queue + static_cast<int>(p)];
      // Load before the claim: a line that is only read stays shared in every cache.
      while (!chunks.chunk(claimed.load(std::memory_order_relaxed)).empty()) {
        const Range range = chunks.chunk(claimed.fetch_add(1, std::memory_order_relaxed));
        if (range.empty()) break;
        f(p, range);
      }
    }
  }
}

// For results that several threads produce and of which each unit is consumed as soon as it is complete: counts
// elements [done.begin, done.end), `size` per unit, and calls use(unit) for each unit that then has need(unit)
// elements. Exactly one thread does so, the one that counts the last element, and it sees everything the others wrote
// before they counted. Units 0 ... nth-1 use `queue`, the next nth the one after it, and so on.
template <typename Need, typename Use>
void count_completed(ChunkCounts* counts, int queue, int nth, Range done, int64_t size, Need need, Use use) {
  for (int64_t unit = done.begin / size; unit * size < done.end; ++unit) {
    const int64_t part = std::min(done.end, (unit + 1) * size) - std::max(done.begin, unit * size);
    std::atomic<uint32_t>& count = counts[unit % nth].claimed[queue + static_cast<int>(unit / nth)];
    // Releases what this thread wrote; acquires what the threads that counted before it wrote.
    const int64_t before = count.fetch_add(static_cast<uint32_t>(part), std::memory_order_acq_rel);
    if (before + part == need(unit)) use(unit);
  }
}

}  // namespace inferno
