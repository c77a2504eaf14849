// What the last step's ops took, as the machine that ran them saw it: worker clocks of CPU threads, timestamps of a
// device. Collected only between set_timing(true) and set_timing(false); off, a step pays nothing for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/plan.h"

namespace inferno {

// One op on one worker (a CPU thread, a device stream), in ticks of the step's clock.
struct WorkerTime {
  uint64_t begin = 0;
  uint64_t end = 0;   // of this worker's part; it then waits for the others
  uint64_t wait = 0;  // of that spent waiting for others in the middle of the op
};

struct StepTimes {
  double ticks_per_us = 1000;
  int workers = 1;
  uint64_t begin = 0;              // begin_step
  uint64_t end = 0;                // all ops were done
  double replay_us = 0;            // the step as a device runs it untimed, from a graph; 0: not so run
  std::vector<OpRecord> ops;       // in the order they ran; the args are those of the step
  std::vector<uint8_t> fused;      // [op] 1: it had the private result of the op before it in a form of its own
  std::vector<size_t> dispatches;  // index of the first op of each hand-over to the workers, ascending
  std::vector<WorkerTime> times;   // [op][worker]

  [[nodiscard]] const WorkerTime& time(size_t op, int worker) const {
    return times[op * static_cast<size_t>(workers) + static_cast<size_t>(worker)];
  }
  void clear() {
    ops.clear();
    fused.clear();
    dispatches.clear();
    times.clear();
  }
};

}  // namespace inferno
