// What a worker of a step reads next: its own slices of the weights, op after op, asked for before it needs them.
//
// Products that ask only for what they read themselves leave memory idle whenever threads wait for each other, and
// start anew after each wait. Here a worker goes on asking across ops: in waits for as much as its cache can hold
// beside the rest, and while it multiplies so that it stays some way ahead. One for each worker, used by it alone.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backend/cpu/kernels/kernel_table.h"
#include "backend/plan.h"

namespace inferno {

struct Worker;

// The parts of an op's weights that are a worker's own, in the order it reads them.
struct OwnReads {
  static constexpr int kMost = 32;  // nobody asks for what comes after them
  std::array<MemoryPart, kMost> part;
  int count = 0;

  void add(const MemoryPart& more) {
    if (count < kMost && more.bytes > 0) part[static_cast<size_t>(count++)] = more;
  }
};

class ReadAhead {
 public:
  ReadAhead(const Plan& plan, const Worker& worker) : plan_(plan), worker_(worker) {}

  // The worker goes on with op `op` (or with nothing, behind the last): what it has not read of those before, it never
  // will.
  void enter(size_t op) {
    op_ = op;
    entered_ = false;
  }
  // It goes on with `own`, one of its parts of the op entered or the beginning of what is left of one.
  void expect(const MemoryPart& own) noexcept { (void)find(own); }
  // In each turn of a wait: asks for some lines.
  void turn() noexcept;
  // The worker is going to read `own`: what it should ask for meanwhile, at least one part, valid until the next call.
  // Nothing when `own` is not the worker's own.
  [[nodiscard]] std::span<const MemoryPart> beside(const MemoryPart& own) noexcept;

 private:
  // Ops that are looked into: the one entered and those after it.
  static constexpr size_t kOps = 4;
  // How far waits go ahead: a part of the second-level cache, and more than most waits have time for. Few threads wait
  // for one that needs all of the memory's speed meanwhile, and go less far.
  static constexpr int64_t kMostInWaits = int64_t{128} << 10;
  static constexpr int64_t kMostInWaitsOfFew = int64_t{64} << 10;
  // As many lines as a core can have on their way at the same time.
  static constexpr int64_t kBytesPerTurn = 16 * 64;
  // How far ahead products stay. Further would leave it to these requests alone to bring weights, but a core has more
  // of them on their way when it also runs into lines that are still missing, for which it guesses the next ones.
  static constexpr int64_t kLead = int64_t{8} << 10;
  static constexpr int64_t kLeastLead = int64_t{4} << 10;

  void look_into(size_t op) noexcept;
  // Makes good what enter() leaves to the first wait: looking into an op takes a while, its lines are in other caches.
  void settle() noexcept;
  bool find(const MemoryPart& own) noexcept;
  bool next_part() noexcept;
  void ask(int64_t bytes) noexcept;
  MemoryPart take(int64_t bytes) noexcept;

  const Plan& plan_;
  const Worker& worker_;
  size_t op_ = 0;
  bool entered_ = false;
  bool looked_ = false;  // into any op
  // Positions in the parts of all ops, one after the other: where the worker reads, and where it asks.
  int64_t read_ = 0;
  int64_t asked_ = 0;
  // The op and part that are asked for, and what is left of the part.
  size_t asked_op_ = 0;
  int asked_part_ = 0;
  MemoryPart rest_;
  // Of op i: [i % kOps].
  std::array<OwnReads, kOps> reads_;
  std::array<int64_t, kOps> starts_ = {};
  std::array<MemoryPart, 4> beside_;
};

}  // namespace inferno
