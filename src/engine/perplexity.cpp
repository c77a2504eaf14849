#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "engine/generate.h"

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
                              const OnProgress& on_progress) {
  engine.check_tokens(tokens);
  const int32_t window = std::min(kPerplexityWindow, engine.context());
  if (window < 2) fail("perplexity needs a context of at least 2 positions, not {}", window);
  int64_t windows = static_cast<int64_t>(tokens.size()) / window;
  if (windows == 0) fail("the text has {} tokens; perplexity needs at least one window of {}", tokens.size(), window);
  if (max_windows > 0) windows = std::min(windows, max_windows);
  const auto vocabulary = static_cast<size_t>(engine.model().config().vocabulary);
  double sum = 0;
  double sum_of_squares = 0;
  Perplexity result;
  ProgressCounter progress(on_progress, static_cast<uint64_t>(windows));
  for (int64_t w = 0; w < windows; ++w) {
    const std::span<const int32_t> text = tokens.subspan(static_cast<size_t>(w * window), static_cast<size_t>(window));
    Request request{.prompt = {text.begin(), text.end()}, .max_new_tokens = 0, .text = false};
    request.reuse_prefix = false;
    // Position p predicts token p + 1; tokens window / 2 and later are scored.
    request.logits_from = window / 2 - 1;
    request.on_logits = [&](int32_t first, std::span<const float> rows) {
      for (; !rows.empty() && first + 1 < window; ++first, rows = rows.subspan(vocabulary)) {
        const double nll = negative_log_likelihood(rows.first(vocabulary), text[static_cast<size_t>(first) + 1]);
        sum += nll;
        sum_of_squares += nll * nll;
        ++result.scored;
      }
    };
    (void)generate(engine, std::move(request));
    if (std::isnan(sum)) {
      KvSequence kv(engine.cache());
      (void)kv.resize(window);  // all pages are free again
      fail("{}", engine.explain(kv, text));
    }
    const auto n = static_cast<double>(result.scored);
    const double mean = sum / n;
    const double variance = std::max(0.0, sum_of_squares / n - mean * mean);
    result.value = std::exp(mean);
    result.error = result.value * std::sqrt(variance / n);
    progress.advance(1);
  }
  return result;
}

}  // namespace inferno
