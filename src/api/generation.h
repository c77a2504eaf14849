// A request of the public API: from its options to the scheduler, and its tokens back.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/driver.h"
#include "inferno/llm.h"

namespace inferno {

struct Generation::State {
  std::shared_ptr<StepperRole> role;
  std::shared_ptr<Ticket> ticket;
  std::vector<std::vector<std::vector<TokenLogprob>>> logprobs;  // [sample][token], where they were asked for
  bool is_enqueued = false;                                      // nobody may be computing it

  // For next().
  bool buffered = false;
  std::mutex mutex;  // of the rest
  std::condition_variable changed;
  std::string text;
  std::atomic<bool> ended{false};  // changed under the mutex; next() may say so a moment before the ticket does

  // Before the caller waits for another thread: an Error where it cannot, and there is one that computes.
  void prepare_to_wait() const;
  // The result of a request that is done, with its log-probabilities.
  [[nodiscard]] GenerateResult finished(RequestResult result) const;
};

// The request; what it collects goes to `state`. With `buffered` its text is kept for next().
[[nodiscard]] Request make_request(std::vector<int32_t> ids, const GenerateOptions& options, TokenCallback on_token,
                                   const std::shared_ptr<Generation::State>& state, std::function<void()> on_done = {});

}  // namespace inferno
