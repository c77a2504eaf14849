// What an op's code sees while it runs on the CPU: which share of the work is its own, the kernels, and scratch memory.
//
// Every worker runs the same function over the same args; each takes its slice, and barrier() stands between phases
// that read what others wrote. All workers call barrier() equally often. The step puts a barrier after every op.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/kernels/kernel_table.h"
#include "threading/partition.h"
#include "threading/thread_pool.h"

namespace inferno {

// Memory that a worker will read after a wait, and asks for, some lines in each turn of the wait: then memory is not
// idle while threads wait for each other, and the first reads find their lines in the core's second-level cache.
class ReadAhead {
 public:
  ReadAhead() = default;
  ReadAhead(const std::byte* begin, int64_t bytes) : at_(begin), end_(begin + std::min(bytes, kMost)) {}
  [[nodiscard]] bool empty() const { return at_ >= end_; }
  void turn() noexcept {
    for (int i = 0; i < kLinesPerTurn && at_ < end_; ++i, at_ += kCacheLine) __builtin_prefetch(at_, 0, 2);
  }

 private:
  // A part of the second-level cache, and more than most waits have time for.
  static constexpr int64_t kMost = int64_t{64} << 10;
  // As many as a core can have on their way at the same time.
  static constexpr int kLinesPerTurn = 16;

  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
};

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
  // For waits: asks for what the ops after this one read first.
  WaitTurn read_ahead = {};

  void barrier() const noexcept { barrier(read_ahead); }
  // ... asks for what this op reads next.
  void barrier(ReadAhead next) const noexcept {
    barrier(WaitTurn{[](void* memory) noexcept { static_cast<ReadAhead*>(memory)->turn(); }, &next});
  }
  void barrier(const WaitTurn& turn) const noexcept {
    if (nth == 1) return;
    const uint64_t begin = wait_ticks != nullptr ? cpu_ticks() : 0;
    pool->barrier(turn);
    if (wait_ticks != nullptr) *wait_ticks += cpu_ticks() - begin;
  }
  // This worker's share of n items, cut at multiples of `step`; shares differ by at most one step.
  [[nodiscard]] Range slice(int64_t n, int64_t step = 1) const { return inferno::slice(n, ith, nth, step); }
  // Calls f(piece, range) with ranges that together, over all workers, are all of the pieces: one slice of each for
  // each worker, or chunks of at least `least` as workers get done. Piece i uses queue + i, an op each queue once.
  template <typename F>
  void for_shares(int queue, std::span<const Piece> pieces, int64_t least, F f) const {
    // Slices of a single chunk are not worth looking for.
    const auto worth_sharing = [&](const Piece& p) { return p.count >= 2 * nth * std::max(p.step, least); };
    if (counts != nullptr && std::any_of(pieces.begin(), pieces.end(), worth_sharing)) {
      for_shared_chunks(counts, queue, pieces, ith, nth, least, f);
      return;
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (const Range range = slice(pieces[i].count, pieces[i].step); !range.empty()) f(i, range);
    }
  }
  // The same for one piece: f(range).
  template <typename F>
  void for_share(int queue, const Piece& piece, int64_t least, F f) const {
    for_shares(queue, {&piece, 1}, least, [&](size_t /*piece*/, Range range) { f(range); });
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
