// Prefetches what a worker of a step reads next: its own slices of the weights, op after op.
//
// A product that prefetches only its own weights leaves memory idle whenever threads wait for each other, and starts
// from nothing after each barrier. This prefetcher continues across ops: while the worker spins at a barrier up to what
// its cache can hold besides its working set, and while it multiplies so that it keeps a fixed lead. One per worker,
// used by that worker only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/plan.h"

namespace inferno {

struct Worker;

// The ranges of one op's weights that one worker reads, in reading order.
struct WeightRanges {
  static constexpr int kCapacity = 32;  // later ranges are not prefetched
  std::array<MemoryRange, kCapacity> range;
  int count = 0;

  void add(const MemoryRange& more) {
    if (count < kCapacity && more.bytes > 0) range[static_cast<size_t>(count++)] = more;
  }
};

class WeightPrefetcher {
 public:
  WeightPrefetcher(const Plan& plan, const Worker& worker) : plan_(plan), worker_(worker) {}

  // The worker starts op `op` (or has finished: op == plan.size()). Ranges of earlier ops that it has not read by now
  // are dropped.
  void enter(size_t op) {
    op_ = op;
    entered_ = false;
  }
  // The worker continues with `own`: one of its ranges of the current op, or the start of the rest of one.
  void seek(const MemoryRange& own) noexcept { (void)find(own); }
  // Prefetches a few lines; called in each iteration of a spin-wait.
  void prefetch_in_wait() noexcept;
  // The worker is about to read `own`: the ranges to prefetch meanwhile, at least one (it may have 0 bytes), valid
  // until the next call. Empty when `own` is not one of the worker's own ranges.
  [[nodiscard]] std::span<const MemoryRange> prefetches_for(const MemoryRange& own) noexcept;

 private:
  // The window of ops that are prefetched: the current one and those after it.
  static constexpr size_t kOps = 4;
  // The most that waits prefetch ahead: a part of the L2 cache, and more than most waits have time for. With few
  // threads the others wait for one that needs all of the memory bandwidth, so they prefetch less.
  static constexpr int64_t kMaxLeadInWaits = int64_t{128} << 10;
  static constexpr int64_t kMaxLeadInWaitsFewThreads = int64_t{64} << 10;
  // The lines a core can have in flight.
  static constexpr int64_t kBytesPerSpin = 16 * 64;
  // The lead of products. With a longer one all weights would come through these prefetches alone, but a core has more
  // requests in flight when it also misses some lines, because its hardware prefetcher then runs too.
  static constexpr int64_t kMaxLead = int64_t{8} << 10;
  static constexpr int64_t kMinLead = int64_t{4} << 10;

  void load_ranges(size_t op) noexcept;
  // The deferred part of enter(): loading an op's ranges misses the cache, so it is left to the first wait.
  void finish_enter() noexcept;
  bool find(const MemoryRange& own) noexcept;
  bool next_range() noexcept;
  void prefetch(int64_t bytes) noexcept;
  MemoryRange advance(int64_t bytes) noexcept;

  const Plan& plan_;
  const Worker& worker_;
  size_t op_ = 0;
  bool entered_ = false;
  bool loaded_ = false;  // the ranges of any op
  // Positions in the concatenated ranges of all ops: where the worker reads, and up to where it has prefetched.
  int64_t read_ = 0;
  int64_t prefetched_ = 0;
  // The op and range that are being prefetched, and the rest of that range.
  size_t prefetch_op_ = 0;
  int prefetch_range_ = 0;
  MemoryRange rest_;
  // Of op i: [i % kOps].
  std::array<WeightRanges, kOps> ranges_;
  std::array<int64_t, kOps> starts_ = {};
  std::array<MemoryRange, 4> scheduled_;
};

}  // namespace inferno
