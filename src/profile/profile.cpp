#include "profile/profile.h"

#include <algorithm>

#include "backend/op_fields.h"

namespace inferno {
namespace {

class FindBatch final : public FieldVisitor {
 public:
  void batch(std::string_view /*name*/, StepBatch& b) override {
    found = true;
    tokens = b.tokens;
    sequences = b.sequences;
  }
  bool found = false;
  int32_t tokens = 0;
  int32_t sequences = 0;
};

uint64_t earliest_begin(const StepTimes& times, size_t op) {
  uint64_t earliest = times.time(op, 0).begin;
  for (int w = 1; w < times.workers; ++w) earliest = std::min(earliest, times.time(op, w).begin);
  return earliest;
}

uint64_t latest_end(const StepTimes& times, size_t op) {
  uint64_t latest = times.time(op, 0).end;
  for (int w = 1; w < times.workers; ++w) latest = std::max(latest, times.time(op, w).end);
  return latest;
}

}  // namespace

std::string_view phase_name(Phase phase) {
  return phase == Phase::prefill ? "prefill" : "decode";
}

double PhaseTotals::ops_us() const {
  double sum = 0;
  for (const OpTotals& op : ops) sum += op.total_us;
  return sum;
}

double PhaseTotals::least_us() const {
  double sum = 0;
  for (const OpTotals& op : ops) sum += op.least_us;
  return sum;
}

void Profile::add_own(const StepTimes& times, const StepView& view, double us) {
  phases_[static_cast<size_t>(view.phase)].own_us += us;
  last_end_ = times.end + static_cast<uint64_t>(us * times.ticks_per_us);
}

double Profile::most_of_limit() const {
  constexpr double kMuch = 0.1;  // of the phase: shorter ones are noise
  double most = 0;
  for (const PhaseTotals& phase : phases_) {
    if (phase.ops_us() <= 0) continue;
    most = std::max(most, phase.least_us() / phase.ops_us());
    for (const OpTotals& op : phase.ops) {
      if (op.total_us > kMuch * phase.ops_us()) most = std::max(most, op.least_us / op.total_us);
    }
  }
  return most;
}

void view_step(const StepTimes& times, Phase before, StepView& view) {
  view.phase = before;
  view.tokens = 0;
  view.ops.resize(times.ops.size());
  int layer = -1;
  bool found = false;
  size_t dispatch = 0;
  for (size_t i = 0; i < times.ops.size(); ++i) {
    if (!found) {
      FindBatch batch;
      visit_fields(times.ops[i], batch);
      if (batch.found) {
        found = true;
        view.phase = batch.tokens == batch.sequences ? Phase::decode : Phase::prefill;
        view.tokens = batch.tokens;
      }
    }
    layer = layer_of(times.ops[i]).value_or(layer);
    // An op lasts until the next one of the same dispatch starts: the wait for the slowest worker is part of it.
    while (dispatch + 1 < times.dispatches.size() && times.dispatches[dispatch + 1] <= i) ++dispatch;
    const bool last = i + 1 == times.ops.size() ||
                      (dispatch + 1 < times.dispatches.size() && times.dispatches[dispatch + 1] == i + 1);
    const uint64_t end = last ? latest_end(times, i) : earliest_begin(times, i + 1);
    // Clocks of different cores may be some nanoseconds apart.
    const uint64_t begin = std::max(earliest_begin(times, i), i == 0 ? times.begin : view.ops[i - 1].end);
    view.ops[i] = {times.ops[i].op(), layer, begin, std::max(begin, end)};
  }
}

void Profile::add_step(const StepTimes& times, const StepView& view, Backend& backend) {
  workers_ = times.workers;
  PhaseTotals& totals = phases_[static_cast<size_t>(view.phase)];
  const auto us = [&](uint64_t begin, uint64_t end) {
    return end > begin ? static_cast<double>(end - begin) / times.ticks_per_us : 0;
  };
  ++totals.steps;
  totals.tokens += view.tokens;
  totals.step_us += us(times.begin, times.end);
  totals.replays += times.replay_us > 0 ? 1 : 0;
  totals.replay_us += times.replay_us;
  if (last_end_ != 0) totals.between_us += us(last_end_, times.begin);
  last_end_ = times.end;

  // The bytes a step reads decide which level of memory they come from.
  std::vector<OpCost> costs(times.ops.size());
  double working_set = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    costs[i] = op_cost(times.ops[i], backend);
    working_set += costs[i].stream_bytes();
  }
  if (limits_.known()) totals.stream_us += working_set / limits_.read_gb_per_s(working_set) / 1e3;
  size_t dispatch = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    const bool first = dispatch < times.dispatches.size() && times.dispatches[dispatch] == i;
    if (first) ++dispatch;
    const StepOp& step_op = view.ops[i];
    OpTotals& op = totals.ops[static_cast<size_t>(step_op.op)];
    const double total = us(step_op.begin, step_op.end);
    double work = 0;
    double most = 0;
    for (int w = 0; w < times.workers; ++w) {
      const WorkerTime& time = times.time(i, w);
      const double own = us(time.begin + time.wait, time.end);
      work += own / times.workers;
      if (first) op.wake_us += us(step_op.begin, time.begin) / times.workers;
      most = std::max(most, own);
    }
    ++op.calls;
    op.total_us += total;
    op.work_us += work;
    op.wait_us += std::max(0.0, total - work);
    op.most_us += most;
    op.least_us += limits_.least_us(costs[i], working_set);
    op.bytes += costs[i].bytes();
    op.operations += costs[i].operations;
    totals.stream_bytes += costs[i].stream_bytes();
    if (step_op.layer < 0) {
      totals.outside_us += total;
    } else {
      const auto layer = static_cast<size_t>(step_op.layer);
      if (totals.layer_us.size() <= layer) totals.layer_us.resize(layer + 1);
      totals.layer_us[layer] += total;
    }
  }
}

}  // namespace inferno
