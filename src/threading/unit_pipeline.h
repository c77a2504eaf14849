// Stages of work over blocks of the same items, without barriers between the stages.
//
// Stage s of a block reads what stage s - 1 of that block wrote. All threads claim units of work in one order, wave by
// wave: wave w has stage s of block w - delay(s), where later stages have later delays, so that other blocks are
// between a stage and the next one of the same block. A thread waits only where a block's previous stage is still being
// computed by others; a slow thread delays its block, not everybody. A unit waits only for units that were claimed
// before it, so there is always a thread that can proceed.
//
// Which thread computes a unit never changes its value.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "threading/partition.h"
#include "threading/wait.h"

namespace inferno {

// The units of stages x blocks, the same for all threads.
struct UnitGrid {
  int32_t stages = 0;
  int32_t blocks = 0;
};

struct Unit {
  int32_t stage = 0;
  int32_t block = 0;
  int32_t number = 0;  // of this stage and block
};

// What the threads share: zeroed before the first of them starts.
class UnitCounts {
 public:
  UnitCounts(std::atomic<uint32_t>* memory, const UnitGrid& grid) : memory_(memory), grid_(grid) {}
  [[nodiscard]] static constexpr size_t size(const UnitGrid& grid) {
    return kFirst + static_cast<size_t>(grid.stages) * static_cast<size_t>(grid.blocks);
  }
  [[nodiscard]] uint32_t claim() { return memory_[0].fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::atomic<uint32_t>& done(int32_t stage, int32_t block) {
    return memory_[kFirst + static_cast<size_t>(stage) * static_cast<size_t>(grid_.blocks) +
                   static_cast<size_t>(block)];
  }

 private:
  static constexpr size_t kFirst = kHotLine / sizeof(std::atomic<uint32_t>);  // claims have a line of their own
  std::atomic<uint32_t>* memory_;
  UnitGrid grid_;
};

// Finds units by their place in the order, in ascending steps. delay and units: as for run_units.
template <typename Delay, typename Units>
class UnitCursor {
 public:
  UnitCursor(const UnitGrid& grid, Delay delay, Units units) : grid_(grid), delay_(delay), units_(units) { enter(); }

  // Unit `place`, which is not before that of the last call; none after the last.
  std::optional<Unit> find(uint32_t place) {
    while (stage_ < grid_.stages && place >= first_ + count_) {
      first_ += count_;
      ++stage_;
      if (stage_ == grid_.stages || delay_(stage_) > wave_) next_wave();
      enter();
    }
    if (stage_ >= grid_.stages) return std::nullopt;
    return Unit{stage_, wave_ - delay_(stage_), static_cast<int32_t>(place - first_)};
  }

 private:
  void next_wave() {
    ++wave_;
    while (begin_ < grid_.stages && delay_(begin_) + grid_.blocks <= wave_) ++begin_;
    stage_ = begin_;
  }
  void enter() {
    if (stage_ < grid_.stages) count_ = static_cast<uint32_t>(units_(stage_, wave_ - delay_(stage_)));
  }

  UnitGrid grid_;
  Delay delay_;
  Units units_;
  int32_t wave_ = 0;
  int32_t begin_ = 0;  // the first stage of the wave
  int32_t stage_ = 0;
  uint32_t first_ = 0;  // place of the first unit of this stage and block
  uint32_t count_ = 0;
};

// Claims and runs units until none is left; every thread calls it with the same functions:
//   delay(stage)          ascending from 0 by at most 1; stages of the same delay follow each other directly
//   units(stage, block)   how many there are. A stage has none in all blocks or in none: the next one then follows the
//                         one before it
//   reads_earlier(stage)  it also reads what the stage before it wrote for earlier blocks
//   run(unit)
//   wait(done, count)     returns when the atomic has reached the count; what was written before is then visible
template <typename Delay, typename Units, typename ReadsEarlier, typename Run, typename Wait>
void run_units(UnitCounts counts, const UnitGrid& grid, Delay delay, Units units, ReadsEarlier reads_earlier, Run run,
               Wait wait) {
  UnitCursor cursor(grid, delay, units);
  while (const std::optional<Unit> unit = cursor.find(counts.claim())) {
    int32_t before = unit->stage - 1;
    while (before >= 0 && units(before, unit->block) == 0) --before;
    for (int32_t b = reads_earlier(unit->stage) ? 0 : unit->block; b <= unit->block && before >= 0; ++b) {
      wait(counts.done(before, b), static_cast<uint32_t>(units(before, b)));
    }
    run(*unit);
    counts.done(unit->stage, unit->block).fetch_add(1, std::memory_order_release);
  }
}

}  // namespace inferno
