// Where the time of many steps went: per op and per layer, for prefill and decode separately, compared with what the
// machine allows.
//
// Times come from the backend's step_times(), costs from the ops' args; so every backend that records times has a
// profile.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/step_times.h"
#include "inferno/tools.h"
#include "profile/machine_limits.h"

namespace inferno {

// A step is prefill when some sequence in it has more than one token.
enum class Phase : uint8_t { prefill, decode };
inline constexpr int kPhases = 2;
[[nodiscard]] std::string_view phase_name(Phase phase);

// Sums over all calls of one op in one phase. Times in microseconds.
struct OpTotals {
  int64_t calls = 0;
  double total_us = 0;  // from its first worker's start to the next op's start
  double wait_us = 0;   // of that, mean over the workers of the time they waited for others or were not yet awake
  double wake_us = 0;   // of that, until a worker started the first op of a dispatch
  double work_us = 0;   // mean over the workers of their own work
  double most_us = 0;   // the slowest worker's own work
  double least_us = 0;  // what the machine's limits allow
  double bytes = 0;
  double operations = 0;
};

struct PhaseTotals {
  int64_t steps = 0;
  int64_t tokens = 0;
  double step_us = 0;       // inside steps
  double between_us = 0;    // from the end of the previous step, without the profiler's own time
  double own_us = 0;        // the profiler's own time
  int64_t replays = 0;      // steps that a device also ran untimed from a graph
  double replay_us = 0;     // of them
  double stream_bytes = 0;  // weights and cache
  double stream_us = 0;     // the time to read these at the limit
  std::array<OpTotals, kOpCount> ops = {};
  std::vector<double> layer_us;  // [layer]
  double outside_us = 0;         // ops of no layer

  [[nodiscard]] double wall_us() const { return step_us + between_us + own_us; }
  [[nodiscard]] double ops_us() const;
  [[nodiscard]] double least_us() const;
};

// One op of a step as the profile and the trace see it.
struct StepOp {
  OpId op = OpId::count;
  int layer = -1;
  uint64_t begin = 0;  // ticks
  uint64_t end = 0;
};
struct StepView {
  Phase phase = Phase::decode;
  int64_t tokens = 0;
  std::vector<StepOp> ops;
};
// `before`: the result when the step does not show its phase (no op has a batch).
void view_step(const StepTimes& times, Phase before, StepView& view);

class Profile {
 public:
  // `limits` are those of the threads the backend uses.
  Profile(std::string backend, MachineLimits limits) : backend_(std::move(backend)), limits_(std::move(limits)) {}
  explicit Profile(Backend& backend);

  // `backend` is where the step ran.
  void add_step(const StepTimes& times, const StepView& view, Backend& backend);
  // The time spent on observing and recording the last step.
  void add_own(const StepTimes& times, const StepView& view, double us);

  [[nodiscard]] const PhaseTotals& phase(Phase phase) const { return phases_[static_cast<size_t>(phase)]; }
  [[nodiscard]] const MachineLimits& limits() const { return limits_; }
  [[nodiscard]] int workers() const { return workers_; }
  // The largest share of the machine's limit that a phase, or an op with much of its time, reached. Above 1 the limits
  // were measured too low.
  [[nodiscard]] double most_of_limit() const;

  // One screen for people: a table per phase, the layers, and the speed-of-light line.
  [[nodiscard]] std::string report() const;
  // The same for machines: as plain data, and that as JSON.
  [[nodiscard]] ProfileReport data() const;
  [[nodiscard]] std::string json() const;
  // "decode 61.3 tok/s = 71 % of what 68 GB/s allows; lost: …"; empty when the phase has no steps.
  [[nodiscard]] std::string speed_of_light(Phase phase) const;

 private:
  struct Loss {
    std::string name;
    double share = 0;  // of the phase's wall time
  };
  [[nodiscard]] std::vector<Loss> losses(const PhaseTotals& totals) const;
  [[nodiscard]] std::string table(Phase phase) const;
  [[nodiscard]] ProfiledPhase data(Phase phase) const;

  std::string backend_;
  MachineLimits limits_;
  int workers_ = 1;
  std::array<PhaseTotals, kPhases> phases_;
  uint64_t last_end_ = 0;
};

}  // namespace inferno
