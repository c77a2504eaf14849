// Who runs the steps: the caller's thread while there is one caller, a thread of the engine's own as soon as there are
// more.
//
// run() steps on the calling thread unless somebody else steps already; so does advance(), once, for requests that were
// only enqueued. submit(), or a second caller who would step meanwhile, starts the thread; a run() that is stepping
// then hands over after its step and waits. The thread stays until the end and sleeps while there is nothing to do.
//
// Everything here may be called from any thread. What would wait for itself (a run() or wait() in a callback), and use
// in a child of fork(), which has none of the threads, are Errors.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/scheduler.h"

namespace inferno {

class Driver;

// Outlives the engine with those who hold a ticket.
class StepperRole {
 public:
  StepperRole();

  [[nodiscard]] bool is_own_process() const;
  // An Error in a child of fork().
  void check_process() const;
  // The same, and an Error on the thread that steps: in a callback.
  void check_can_wait() const;
  // Somebody steps from now on, as long as there is a driver.
  void start_thread();

 private:
  friend class Driver;
  [[nodiscard]] bool try_take() noexcept;
  void take() noexcept;
  void leave() noexcept;

  pid_t process_;
  std::atomic<std::thread::id> stepper_{};
  std::mutex mutex_;  // of driver_
  Driver* driver_ = nullptr;
};

class Driver {
 public:
  // `on_step` is called after each step, on the thread that makes it.
  explicit Driver(Scheduler& scheduler, std::function<void()> on_step = {});
  // Closes the scheduler: all requests end as cancelled.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] std::shared_ptr<Ticket> submit(Request request);
  // Without a thread: whoever steps, advance() among them, computes it.
  [[nodiscard]] std::shared_ptr<Ticket> enqueue(Request request);
  // One step on the calling thread. False: there is nothing to do, or somebody else steps and goes on until all is
  // done.
  bool advance();
  // Until the request is done; an Error of the request is thrown. `cancel`, when set from anywhere, ends it before its
  // next step.
  [[nodiscard]] RequestResult run(Request request, const std::atomic<bool>* cancel = nullptr);
  [[nodiscard]] const std::shared_ptr<StepperRole>& role() const { return role_; }

 private:
  friend class StepperRole;
  class TakenRole;
  bool step();
  void start_thread();
  void step_on_thread() noexcept;
  void step_until_done(Ticket& ticket, const std::atomic<bool>* cancel);

  Scheduler& scheduler_;
  std::function<void()> on_step_;
  std::shared_ptr<StepperRole> role_;
  std::mutex mutex_;  // of thread_
  std::thread thread_;
  std::atomic<bool> has_thread_{false};
  std::atomic<bool> ending_{false};
};

}  // namespace inferno
