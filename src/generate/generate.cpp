#include "generate/generate.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace inferno {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// Times of the forwards as they happen; nothing is stored per forward.
class Stopwatch {
 public:
  void forward_begins() { begin_ = Clock::now(); }
  void forward_ends() {
    const Clock::time_point now = Clock::now();
    const double ms = milliseconds(now - begin_);
    metrics_.forward_min_ms = metrics_.forwards == 0 ? ms : std::min(metrics_.forward_min_ms, ms);
    metrics_.forward_max_ms = std::max(metrics_.forward_max_ms, ms);
    total_ms_ += ms;
    if (metrics_.forwards == 0) {
      metrics_.time_to_first_token_ms = ms;
      first_token_ = now;
    }
    last_token_ = now;
    ++metrics_.forwards;
  }
  [[nodiscard]] GenerationMetrics result(size_t prompt, size_t generated) const {
    GenerationMetrics metrics = metrics_;
    metrics.prompt_tokens = static_cast<int32_t>(prompt);
    metrics.generated_tokens = static_cast<int32_t>(generated);
    if (metrics.forwards > 0) metrics.forward_mean_ms = total_ms_ / metrics.forwards;
    const double decode_ms = milliseconds(last_token_ - first_token_);
    if (metrics.forwards > 1 && decode_ms > 0)
      metrics.decode_tokens_per_second = (metrics.forwards - 1) / decode_ms * 1e3;
    return metrics;
  }

 private:
  GenerationMetrics metrics_;
  double total_ms_ = 0;
  Clock::time_point begin_, first_token_, last_token_;
};

}  // namespace

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::length:
      return "length";
    case StopReason::end_token:
      return "end_token";
    case StopReason::stop_string:
      return "stop_string";
    case StopReason::context_full:
      return "context_full";
    case StopReason::cancelled:
      return "cancelled";
  }
  return "";
}

Generation generate(Engine& engine, std::span<const int32_t> prompt, const GenerationOptions& options,
                    const TokenCallback& on_token, const std::atomic<bool>* cancel) {
  engine.check_tokens(prompt);
  check_sampling(options.sampling);
  const auto context = static_cast<size_t>(engine.context());
  if (prompt.empty()) fail("the prompt is empty and the model has no token to begin a text with; give a prompt");
  if (prompt.size() > context) {
    fail("the prompt has {} tokens but the context {}; shorten it or raise --ctx", prompt.size(), context);
  }

  // All the memory the loop needs, before it starts.
  std::vector<int32_t> sequence;
  sequence.reserve(std::min(context, prompt.size() + static_cast<size_t>(options.max_new_tokens)) + 1);
  sequence.assign(prompt.begin(), prompt.end());
  Generation result;
  Stopwatch watch;
  const std::vector<int32_t>& ends = engine.end_tokens();
  SampleRequest request{.settings = options.sampling};
  size_t cached = 0;  // tokens whose keys and values the cache holds

  const auto generated = [&] { return sequence.size() - prompt.size(); };
  for (;;) {
    if (generated() >= static_cast<size_t>(options.max_new_tokens)) {
      result.reason = StopReason::length;
      break;
    }
    if (sequence.size() > context) {
      result.reason = StopReason::context_full;
      break;
    }
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      result.reason = StopReason::cancelled;
      break;
    }
    request.history = sequence;
    request.position = static_cast<int32_t>(sequence.size());
    const size_t first = options.use_cache ? cached : 0;
    watch.forward_begins();
    engine.forward(0, static_cast<int32_t>(first), std::span(sequence).subspan(first), 1, &request);
    const int32_t token = engine.decoder().sampled()[0];
    watch.forward_ends();
    if (token < 0) fail("the model gave no token: its logits are not numbers");
    cached = sequence.size();
    if (options.stop_at_end && std::find(ends.begin(), ends.end(), token) != ends.end()) {
      result.reason = StopReason::end_token;
      break;
    }
    sequence.push_back(token);
    if (on_token && !on_token(token)) {
      result.reason = StopReason::stop_string;
      break;
    }
  }
  result.ids.assign(sequence.begin() + static_cast<ptrdiff_t>(prompt.size()), sequence.end());
  result.metrics = watch.result(prompt.size(), result.ids.size());
  return result;
}

std::string format_metrics(const GenerationMetrics& metrics) {
  return fmt::format(
      "metrics:\n"
      "  time_to_first_token_ms: {:.3f}\n"
      "  decode_tokens_per_second: {:.3f}\n"
      "  per_forward_ms: min {:.3f}  max {:.3f}  mean {:.3f}  (n={})\n",
      metrics.time_to_first_token_ms, metrics.decode_tokens_per_second, metrics.forward_min_ms, metrics.forward_max_ms,
      metrics.forward_mean_ms, metrics.forwards);
}

}  // namespace inferno
