// A decorator that feeds a profile, a trace, or both with the times of every step.
#pragma once

#include <memory>

#include "backend/decorator.h"
#include "profile/profile.h"
#include "profile/trace_writer.h"

namespace inferno {

class ProfilingBackend final : public BackendDecorator {
 public:
  // Either may be null; both outlive the backend's last step.
  ProfilingBackend(std::unique_ptr<Backend> inner, Profile* profile, TraceWriter* trace);

  void begin_step(StepMode mode) override;
  void end_step() override;

 private:
  Profile* profile_;
  TraceWriter* trace_;
  StepView view_;
  bool planning_ = false;
};

}  // namespace inferno
