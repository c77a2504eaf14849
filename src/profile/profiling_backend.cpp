#include "profile/profiling_backend.h"

#include <chrono>

namespace inferno {

ProfilingBackend::ProfilingBackend(std::unique_ptr<Backend> inner, Profile* profile, TraceWriter* trace)
    : BackendDecorator(std::move(inner)) {
  watch(profile, trace);
}

void ProfilingBackend::watch(Profile* profile, TraceWriter* trace) {
  profile_ = profile;
  trace_ = trace;
  inner().set_timing(profile_ != nullptr || trace_ != nullptr);
}

void ProfilingBackend::begin_step(StepMode mode) {
  planning_ = mode == StepMode::plan;
  inner().begin_step(mode);
}

void ProfilingBackend::end_step() {
  using Clock = std::chrono::steady_clock;
  inner().end_step();
  const Clock::time_point begin = Clock::now();
  const StepTimes* times = inner().step_times();
  if (planning_ || times == nullptr || times->ops.empty()) return;
  const std::scoped_lock lock(mutex_);
  view_step(*times, view_.phase, view_);
  if (profile_ != nullptr) profile_->add_step(*times, view_, inner());
  if (trace_ != nullptr) trace_->add_step(*times, view_);
  const std::chrono::duration<double, std::micro> own = Clock::now() - begin;
  if (profile_ != nullptr) profile_->add_own(*times, view_, own.count());
}

}  // namespace inferno
