#include "generate/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace inferno {
namespace {

// -log softmax(row)[target]
double negative_log_likelihood(std::span<const float> row, int32_t target) {
  const float largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += std::exp(static_cast<double>(logit - largest));
  return std::log(sum) + largest - row[static_cast<size_t>(target)];
}

}  // namespace

Perplexity measure_perplexity(Engine& engine, std::span<const int32_t> tokens, int64_t max_windows,
                              const std::function<void(int64_t, int64_t, const Perplexity&)>& on_window) {
  engine.check_tokens(tokens);
  const int32_t window = std::min(kPerplexityWindow, engine.context());
  int64_t windows = static_cast<int64_t>(tokens.size()) / window;
  if (windows == 0) fail("the text has {} tokens; perplexity needs at least one window of {}", tokens.size(), window);
  if (max_windows > 0) windows = std::min(windows, max_windows);
  const auto vocabulary = static_cast<size_t>(engine.model().config().vocabulary);
  std::vector<float> rows(static_cast<size_t>(engine.decoder().limits().max_logit_rows) * vocabulary);
  double sum = 0;
  double sum_of_squares = 0;
  Perplexity result;
  for (int64_t w = 0; w < windows; ++w) {
    const std::span<const int32_t> text = tokens.subspan(static_cast<size_t>(w * window), static_cast<size_t>(window));
    const int32_t chunk = engine.decoder().limits().max_tokens;
    for (int32_t first = 0; first < window; first += chunk) {
      const int32_t size = std::min(chunk, window - first);
      // Position p predicts token p + 1; tokens window / 2 and later are scored.
      const int32_t first_scored = std::max(first, window / 2 - 1);
      const int32_t wanted = std::max(0, first + size - first_scored);
      engine.forward(0, first, text.subspan(static_cast<size_t>(first), static_cast<size_t>(size)), wanted);
      if (wanted == 0) continue;
      engine.decoder().download_logits(std::span(rows).first(static_cast<size_t>(wanted) * vocabulary));
      for (int32_t i = 0; i < wanted && first_scored + i + 1 < window; ++i) {
        const double nll =
            negative_log_likelihood(std::span(rows).subspan(static_cast<size_t>(i) * vocabulary, vocabulary),
                                    text[static_cast<size_t>(first_scored) + static_cast<size_t>(i) + 1]);
        sum += nll;
        sum_of_squares += nll * nll;
        ++result.scored;
      }
    }
    const auto n = static_cast<double>(result.scored);
    const double mean = sum / n;
    const double variance = std::max(0.0, sum_of_squares / n - mean * mean);
    result.value = std::exp(mean);
    result.error = result.value * std::sqrt(variance / n);
    if (on_window) on_window(w + 1, windows, result);
  }
  return result;
}

}  // namespace inferno
