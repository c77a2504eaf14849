// What an op's code sees while it runs on the CPU: which share of the work is its own, the kernels, and scratch memory.
//
// Every worker runs the same function over the same args; each takes its slice, and barrier() stands between phases
// that read what others wrote. All workers call barrier() equally often. The step puts a barrier after every op, or
// after ops that one worker runs joined.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/read_ahead.h"
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
  // What this worker reads next.
  ReadAhead* ahead = nullptr;
  // For the op's input of one row in the layout of its weight: memory of all workers, OpScratch::converted bytes, which
  // stays from op to op; and whether those who made the input have put it there.
  std::byte* converted = nullptr;
  bool input_is_converted = false;

  // After it the worker goes on with its part `own` of a weight.
  void barrier(const MemoryPart& own) const noexcept {
    ahead->expect(own);
    barrier();
  }
  void barrier() const noexcept {
    if (nth == 1) return;
    const uint64_t begin = wait_ticks != nullptr ? cpu_ticks() : 0;
    pool->barrier({[](void* context) noexcept { static_cast<ReadAhead*>(context)->turn(); }, ahead});
    if (wait_ticks != nullptr) *wait_ticks += cpu_ticks() - begin;
  }
  // This worker's share of n items, cut at multiples of `step`; shares differ by at most one step.
  [[nodiscard]] Range slice(int64_t n, int64_t step = 1) const { return inferno::slice(n, ith, nth, step); }
  // Calls f(piece, range) with ranges that together, over all workers, are all of the pieces: one slice of each for
  // each worker, or chunks of at least `least` as workers get done. Piece i uses queue + i, an op each queue once.
  template <typename F>
  void for_shares(int queue, std::span<const Piece> pieces, int64_t least, F f) const {
    if (counts != nullptr &&
        std::any_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return worth_sharing(p, least); })) {
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
  // Range `number` of those that for_shares calls f with for this worker's own slice of an op's sole piece; empty
  // behind the last.
  [[nodiscard]] Range own_share(const Piece& piece, int64_t least, uint32_t number) const {
    const Range mine = slice(piece.count, piece.step);
    if (counts == nullptr || !worth_sharing(piece, least)) return number == 0 ? mine : Range{};
    return SliceChunks(mine, piece.step, least).chunk(number);
  }
  // The next of the items 0, 1, 2, ... that this worker is to do after `last` (first: -1): every nth one, or whichever
  // nobody has taken yet.
  [[nodiscard]] int64_t next_item(int queue, int64_t last) const {
    if (counts == nullptr) return last < 0 ? ith : last + nth;
    return counts[0].claimed[queue].fetch_add(1, std::memory_order_relaxed);
  }
  // The same as slice() when the work is worth sharing, else all of it on worker 0.
  [[nodiscard]] Range slice_if(bool parallel, int64_t n, int64_t step = 1) const {
    if (parallel) return slice(n, step);
    return ith == 0 ? Range{0, n} : Range{};
  }

 private:
  // Slices of a single chunk are not worth looking for.
  [[nodiscard]] bool worth_sharing(const Piece& p, int64_t least) const {
    return p.count >= 2 * nth * std::max(p.step, least);
  }
};

// Scratch memory an op needs while it runs; Worker says what for.
struct OpScratch {
  int64_t shared = 0;
  int64_t local = 0;
  int64_t converted = 0;
};

}  // namespace inferno
