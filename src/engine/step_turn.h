// Who may use the backend: one at a time, in the order they came. Steps of the scheduler and embeddings take turns.
#pragma once

#include <atomic>
#include <cstdint>

namespace inferno {

// Taking a free turn is one atomic addition; waiting sleeps.
class StepTurn {
 public:
  class Hold {
   public:
    explicit Hold(StepTurn* turn) : turn_(turn) {
      if (turn_ != nullptr) turn_->take();
    }
    ~Hold() {
      if (turn_ != nullptr) turn_->leave();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    StepTurn* turn_;
  };

 private:
  void take() noexcept {
    const uint32_t mine = next_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t now = served_.load(std::memory_order_acquire); now != mine;) {
      served_.wait(now, std::memory_order_acquire);
      now = served_.load(std::memory_order_acquire);
    }
  }
  void leave() noexcept {
    served_.fetch_add(1, std::memory_order_release);
    served_.notify_all();
  }

  std::atomic<uint32_t> next_{0};
  std::atomic<uint32_t> served_{0};
};

}  // namespace inferno
