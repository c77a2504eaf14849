// The generation loop: prompt in, tokens out one by one, until something ends it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/sampling.h"
#include "generate/engine.h"

namespace inferno {

struct GenerationOptions {
  int32_t max_new_tokens = 128;
  SamplingSettings sampling;
  bool use_cache = true;    // false: recompute the whole sequence for every token
  bool stop_at_end = true;  // at an end token, which is then not part of the result
};

enum class StopReason { length, end_token, stop_string, context_full, cancelled };
[[nodiscard]] std::string_view to_string(StopReason reason);

// A forward is one pass that makes a token: the whole prompt counts as one.
struct GenerationMetrics {
  int32_t prompt_tokens = 0;
  int32_t generated_tokens = 0;
  double time_to_first_token_ms = 0;    // prompt forward and first sample
  double decode_tokens_per_second = 0;  // (n - 1) / time after the first token; 0 for fewer than two tokens
  double forward_min_ms = 0;
  double forward_max_ms = 0;
  double forward_mean_ms = 0;
  int32_t forwards = 0;
};

struct Generation {
  std::vector<int32_t> ids;
  StopReason reason = StopReason::length;
  GenerationMetrics metrics;
};

// Called with every token as it is made; false ends the generation there, as stop_string.
using TokenCallback = std::function<bool(int32_t id)>;

// A prompt that is empty or longer than the context is an Error. `cancel`, when set from anywhere, ends the generation
// after the token being made.
[[nodiscard]] Generation generate(Engine& engine, std::span<const int32_t> prompt, const GenerationOptions& options,
                                  const TokenCallback& on_token = {}, const std::atomic<bool>* cancel = nullptr);

// The three metrics lines, as the command line prints them.
[[nodiscard]] std::string format_metrics(const GenerationMetrics& metrics);

}  // namespace inferno
