#include "cli/prompt_progress.h"

#include <chrono>

#include "base/block_signals.h"
#include "cli/progress_bar.h"

namespace inferno::cli {

PromptProgress::PromptProgress(const Scheduler& scheduler, size_t prompt_tokens, bool quiet) {
  constexpr size_t kShort = 256;  // computed before anybody looks
  if (quiet || prompt_tokens < kShort) return;
  const BlockSignals block;
  thread_ = std::thread([this, &scheduler, prompt_tokens] {
    constexpr std::chrono::milliseconds kLook{50};
    ProgressBar bar("prompt");
    bar.update(0, prompt_tokens);
    while (!stopping_.load()) {
      const EngineStats stats = scheduler.stats();
      bar.update(static_cast<uint64_t>(stats.prompt_tokens + stats.reused_tokens), prompt_tokens);
      std::this_thread::sleep_for(kLook);
    }
  });
}

void PromptProgress::stop() {
  stopping_.store(true);
  if (thread_.joinable()) thread_.join();
}

}  // namespace inferno::cli
