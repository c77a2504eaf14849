// Perplexity: how well a model predicts a text.
#pragma once

#include <cstdint>
#include <span>

#include "base/progress.h"
#include "engine/engine.h"

namespace inferno {

inline constexpr int32_t kPerplexityWindow = 512;

// Windows of 512 tokens, each from an empty cache; the second half of each is scored; progress is counted in
// windows. A text shorter than one window is an Error. The engine needs all_logits.
[[nodiscard]] Perplexity measure_perplexity(Engine& engine, std::span<const int32_t> tokens, int64_t max_windows,
                                            const OnProgress& on_progress = {});

}  // namespace inferno
