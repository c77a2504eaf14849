// Short ways to run a model in a test.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/builtin_model.h"
#include "generate/engine.h"
#include "generate/generate.h"

namespace inferno::testing {

inline std::unique_ptr<Engine> make_engine(const std::string& path, const std::string& backend, DType kv = DType::f32,
                                           bool all_logits = false) {
  EngineOptions options;
  options.backend = backend;
  options.kv_dtype = kv;
  options.all_logits = all_logits;
  options.quiet = true;
  return std::make_unique<Engine>(open_model(path), options);
}

// Logits of every position, fed in chunks of `chunk` tokens (0: as large as they may be).
inline std::vector<float> all_logits(Engine& engine, std::span<const int32_t> tokens, int32_t chunk = 0) {
  const auto vocabulary = static_cast<size_t>(engine.model().config().vocabulary);
  const int32_t most = engine.decoder().limits().max_tokens;
  const auto step = static_cast<size_t>(chunk == 0 ? most : std::min(chunk, most));
  std::vector<float> rows(tokens.size() * vocabulary);
  for (size_t first = 0; first < tokens.size(); first += step) {
    const size_t count = std::min(step, tokens.size() - first);
    engine.forward(0, static_cast<int32_t>(first), tokens.subspan(first, count), static_cast<int32_t>(count));
    engine.decoder().download_logits(std::span(rows).subspan(first * vocabulary, count * vocabulary));
  }
  return rows;
}

inline double rms_difference(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

inline double max_difference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(double{a[i]} - b[i]));
  return most;
}

// How far greedy generation follows `expected`. `margins` (the reference's top-1 minus top-2 logit at each token) may
// be empty; then our own logits give them. Returns the first position that differs, or expected.size(), and its margin.
struct Agreement {
  size_t tokens = 0;
  double margin_at_difference = INFINITY;
};
inline Agreement greedy_agreement(Engine& engine, const std::vector<int32_t>& prompt,
                                  const std::vector<int32_t>& expected, const std::vector<double>& margins = {}) {
  GenerationOptions options;
  options.max_new_tokens = static_cast<int32_t>(expected.size());
  options.stop_at_end = false;
  const Generation result = generate(engine, prompt, options);
  size_t same = 0;
  while (same < result.ids.size() && same < expected.size() && result.ids[same] == expected[same]) ++same;
  if (same == expected.size()) return {same, INFINITY};
  if (!margins.empty()) return {same, margins[same]};
  std::vector<int32_t> sequence = prompt;
  sequence.insert(sequence.end(), expected.begin(), expected.begin() + static_cast<ptrdiff_t>(same));
  engine.forward(0, 0, sequence, 1);
  std::vector<float> row(static_cast<size_t>(engine.model().config().vocabulary));
  engine.decoder().download_logits(row);
  std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
  return {same, double{row[0]} - row[1]};
}

}  // namespace inferno::testing
