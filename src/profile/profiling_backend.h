// A decorator that feeds a profile, a trace, or both with the times of every step.
#pragma once

#include <memory>
#include <mutex>

#include "backend/decorator.h"
#include "profile/profile.h"
#include "profile/trace_writer.h"

namespace inferno {

class ProfilingBackend final : public BackendDecorator {
 public:
  ProfilingBackend(std::unique_ptr<Backend> inner, Profile* profile, TraceWriter* trace);

  // From the next step on, feeds these; both must live until then or the end. Either may be null; without both, nothing
  // is timed.
  void watch(Profile* profile, TraceWriter* trace);

  // Between two steps, from any thread.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }

  void begin_step(StepMode mode) override;
  void end_step() override;

 private:
  std::mutex mutex_;  // of what is fed
  Profile* profile_ = nullptr;
  TraceWriter* trace_ = nullptr;
  StepView view_;
  bool planning_ = false;
};

}  // namespace inferno
