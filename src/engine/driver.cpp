#include "engine/driver.h"

#include <unistd.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "base/block_signals.h"
#include "base/error.h"
#include "base/platform.h"
#include "threading/affinity.h"

namespace inferno {

StepperRole::StepperRole() : process_(::getpid()) {}

bool StepperRole::is_own_process() const {
  return ::getpid() == process_;
}

void StepperRole::check_process() const {
  if (!is_own_process()) {
    fail_usage("this model was loaded before fork() and its threads are in the parent; load it in the child");
  }
}

void StepperRole::check_can_wait() const {
  check_process();
  if (stepper_.load(std::memory_order_relaxed) == std::this_thread::get_id()) {
    fail_usage("a callback of a model cannot wait for a result of the same model; submit it there and wait elsewhere");
  }
}

void StepperRole::start_thread() {
  const std::scoped_lock lock(mutex_);
  if (driver_ != nullptr) driver_->start_thread();
}

bool StepperRole::try_take() noexcept {
  std::thread::id nobody;
  return stepper_.compare_exchange_strong(nobody, std::this_thread::get_id(), std::memory_order_acquire);
}

void StepperRole::take() noexcept {
  while (!try_take()) {
    const std::thread::id other = stepper_.load(std::memory_order_relaxed);
    if (other != std::thread::id()) stepper_.wait(other, std::memory_order_relaxed);
  }
}

void StepperRole::leave() noexcept {
  stepper_.store({}, std::memory_order_release);
  stepper_.notify_all();
}

// The role while it lasts, where nobody else has it.
class Driver::TakenRole {
 public:
  explicit TakenRole(StepperRole& role) : role_(role), is_taken_(role.try_take()) {}
  ~TakenRole() {
    if (is_taken_) role_.leave();
  }
  TakenRole(const TakenRole&) = delete;
  TakenRole& operator=(const TakenRole&) = delete;
  explicit operator bool() const { return is_taken_; }

 private:
  StepperRole& role_;
  bool is_taken_;
};

Driver::Driver(Scheduler& scheduler, std::function<void()> on_step)
    : scheduler_(scheduler), on_step_(std::move(on_step)), role_(std::make_shared<StepperRole>()) {
  role_->driver_ = this;
}

Driver::~Driver() {
  {
    const std::scoped_lock lock(role_->mutex_);
    role_->driver_ = nullptr;
  }
  ending_.store(true, std::memory_order_relaxed);
  scheduler_.close();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Ticket> Driver::submit(Request request) {
  role_->check_process();
  start_thread();
  return scheduler_.submit(std::move(request));
}

std::shared_ptr<Ticket> Driver::enqueue(Request request) {
  role_->check_process();
  return scheduler_.submit(std::move(request));
}

bool Driver::advance() {
  role_->check_can_wait();
  if (has_thread_.load(std::memory_order_acquire)) return false;
  const TakenRole taken(*role_);
  if (taken) return step();
  start_thread();  // who steps now may end before these requests do
  return false;
}

RequestResult Driver::run(Request request, const std::atomic<bool>* cancel) {
  role_->check_can_wait();
  const std::shared_ptr<Ticket> ticket = scheduler_.submit(std::move(request));
  if (const TakenRole taken(*role_); taken) step_until_done(*ticket, cancel);
  if (!ticket->is_done()) {
    start_thread();
    constexpr std::chrono::milliseconds kLook{20};
    while (cancel != nullptr && !ticket->is_done()) {
      if (cancel->load(std::memory_order_relaxed)) ticket->cancel();
      std::this_thread::sleep_for(kLook);
    }
    ticket->wait();
  }
  RequestResult result = ticket->take_result();
  if (result.error) std::rethrow_exception(result.error);
  return result;
}

bool Driver::step() {
  const bool more = scheduler_.step();
  if (on_step_) on_step_();
  return more;
}

void Driver::step_until_done(Ticket& ticket, const std::atomic<bool>* cancel) {
  try {
    while (!ticket.is_done() && !has_thread_.load(std::memory_order_relaxed)) {
      if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) ticket.cancel();
      step();
    }
  } catch (...) {
    // Its callbacks may refer to what the caller is about to lose.
    ticket.cancel();
    step();
    throw;
  }
}

void Driver::start_thread() {
  if (has_thread_.load(std::memory_order_acquire)) return;
  const std::scoped_lock lock(mutex_);
  if (thread_.joinable()) return;
  const BlockSignals block;
  try {
    thread_ = std::thread([this] { step_on_thread(); });
  } catch (const std::system_error& error) {
    fail("no thread can be made to compute requests on: {}", error.what());
  }
  has_thread_.store(true, std::memory_order_release);
}

// Nothing here throws: what goes wrong in a step is its requests' error.
void Driver::step_on_thread() noexcept {
  platform::name_this_thread("inferno-steps");
  prefer_performance_cores();
  role_->take();
  while (!ending_.load(std::memory_order_relaxed)) {
    if (!step()) scheduler_.wait_for_work(scheduler_.tidy());
  }
  while (step()) {
  }
  role_->leave();
}

}  // namespace inferno
