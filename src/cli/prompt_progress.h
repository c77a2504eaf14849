// A bar while a long prompt is computed.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "engine/scheduler.h"

namespace inferno::cli {

// Watches a scheduler that runs one request from a thread of its own, from now until stop().
class PromptProgress {
 public:
  PromptProgress(const Scheduler& scheduler, size_t prompt_tokens, bool quiet);
  ~PromptProgress() { stop(); }
  PromptProgress(const PromptProgress&) = delete;
  PromptProgress& operator=(const PromptProgress&) = delete;

  // Before something else is written; the bar's line is ended.
  void stop();

 private:
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace inferno::cli
