// What an op's code sees while it runs on the CPU: which share of the work is its own, the kernels, and scratch memory.
//
// Every worker runs the same function over the same args; each computes its slice, and a barrier() separates phases
// that read what other workers wrote. All workers call barrier() equally often. The step puts a barrier after every op,
// or after ops that run joined.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/cpu/weight_prefetcher.h"
#include "threading/partition.h"
#include "threading/thread_pool.h"

namespace inferno {

class Communicator;

struct Worker {
  int ith = 0;
  int nth = 1;
  const KernelTable* kernels = nullptr;
  std::byte* shared = nullptr;  // one for all workers, 64-byte aligned, the op's OpScratch::shared bytes
  std::byte* local = nullptr;   // this worker's own, OpScratch::local bytes
  ThreadPool* pool = nullptr;   // null with one thread
  // [nth], the claims on chunks when threads that finish early steal from the others; null when each thread computes
  // exactly its slice.
  ChunkCounts* counts = nullptr;
  // The sum of the waits inside an op; null when waits are not timed.
  uint64_t* wait_ticks = nullptr;
  WeightPrefetcher* prefetcher = nullptr;
  // The op's input of one row in the activation layout of its weight: memory of all workers, OpScratch::converted
  // bytes, which is kept from op to op; and whether the producers of the input have already converted it into there.
  std::byte* converted = nullptr;
  bool input_is_converted = false;
  Communicator* ranks = nullptr;  // null with one rank

  // After the barrier the worker continues with its range `own` of a weight.
  void barrier(const MemoryRange& own) const noexcept {
    prefetcher->seek(own);
    barrier();
  }
  void barrier() const noexcept {
    if (nth == 1) return;
    const uint64_t begin = wait_ticks != nullptr ? cpu_ticks() : 0;
    pool->barrier(
        {[](void* context) noexcept { static_cast<WeightPrefetcher*>(context)->prefetch_in_wait(); }, prefetcher});
    if (wait_ticks != nullptr) *wait_ticks += cpu_ticks() - begin;
  }
  // This worker's slice of n items, split at multiples of `step`; slices differ by at most one step.
  [[nodiscard]] Range slice(int64_t n, int64_t step = 1) const { return inferno::slice(n, ith, nth, step); }
  // Calls f(piece, range) with ranges that together, over all workers, cover all of the pieces: each worker's slice of
  // each piece, or with `counts` chunks of at least `min_chunk` that workers claim from their own slices and then steal
  // from those of others. Piece i uses queue + i; an op uses each queue once.
  template <typename F>
  void for_chunks(int queue, std::span<const Piece> pieces, int64_t min_chunk, F f) const {
    if (counts != nullptr &&
        std::any_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return worth_stealing(p, min_chunk); })) {
      for_shared_chunks(counts, queue, pieces, ith, nth, min_chunk, f);
      return;
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (const Range range = slice(pieces[i].count, pieces[i].step); !range.empty()) f(i, range);
    }
  }
  // The same for one piece: f(range).
  template <typename F>
  void for_chunks(int queue, const Piece& piece, int64_t min_chunk, F f) const {
    for_chunks(queue, {&piece, 1}, min_chunk, [&](size_t /*piece*/, Range range) { f(range); });
  }
  // Chunk `number` of this worker's own slice of an op's only piece, as for_chunks claims them; empty after the last.
  [[nodiscard]] Range own_chunk(const Piece& piece, int64_t min_chunk, uint32_t number) const {
    const Range mine = slice(piece.count, piece.step);
    if (counts == nullptr || !worth_stealing(piece, min_chunk)) return number == 0 ? mine : Range{};
    return SliceChunks(mine, piece.step, min_chunk).chunk(number);
  }
  // The next of the items 0, 1, 2, ... for this worker after `last` (at first: -1): every nth one, or with `counts` the
  // first that no worker has claimed.
  [[nodiscard]] int64_t next_item(int queue, int64_t last) const {
    if (counts == nullptr) return last < 0 ? ith : last + nth;
    return counts[0].claimed[queue].fetch_add(1, std::memory_order_relaxed);
  }
  // slice() when the work is worth splitting, else all of it on worker 0.
  [[nodiscard]] Range slice_if(bool parallel, int64_t n, int64_t step = 1) const {
    if (parallel) return slice(n, step);
    return ith == 0 ? Range{0, n} : Range{};
  }

 private:
  // Stealing from slices of a single chunk is not worth the atomic operations.
  [[nodiscard]] bool worth_stealing(const Piece& p, int64_t min_chunk) const {
    return p.count >= 2 * nth * std::max(p.step, min_chunk);
  }
};

// Scratch memory an op needs while it runs; Worker says what for.
struct OpScratch {
  int64_t shared = 0;
  int64_t local = 0;
  int64_t converted = 0;
};

}  // namespace inferno
