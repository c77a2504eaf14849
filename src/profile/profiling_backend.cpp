#include "profile/profiling_backend.h"

namespace inferno {

ProfilingBackend::ProfilingBackend(std::unique_ptr<Backend> inner, Profile* profile, TraceWriter* trace)
    : BackendDecorator(std::move(inner)), profile_(profile), trace_(trace) {
  this->inner().set_timing(true);
}

void ProfilingBackend::begin_step(StepMode mode) {
  planning_ = mode == StepMode::plan;
  inner().begin_step(mode);
}

void ProfilingBackend::end_step() {
  inner().end_step();
  const StepTimes* times = inner().step_times();
  if (planning_ || times == nullptr || times->ops.empty()) return;
  view_step(*times, view_.phase, view_);
  if (profile_ != nullptr) profile_->add_step(*times, view_, inner());
  if (trace_ != nullptr) trace_->add_step(*times, view_);
}

}  // namespace inferno
