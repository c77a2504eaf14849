// Short ways to run a model in a test.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/builtin_model.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "gguf/writer.h"
#include "model/quantize_model.h"
#include "support/test_data.h"

namespace inferno::testing {

// The same text for all: long enough to cross a page and an attention span.
inline std::vector<int32_t> tokens_of(int32_t seed, int32_t count, int32_t vocabulary) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((seed * 7919 + i * 104729 + i * i * 31) % vocabulary);
  return tokens;
}

// The fixture with a longer context than its own, and in another type: its weights are random anyway.
inline const std::string& long_model(const std::string& type) {
  struct Files {  // removed when the tests end
    std::map<std::string, std::string> paths;
    Files() = default;
    ~Files() {
      for (const auto& [name, file] : paths) ::unlink(file.c_str());
    }
    Files(const Files&) = delete;
    Files& operator=(const Files&) = delete;
  };
  static Files files;
  std::string& path = files.paths[type];
  if (!path.empty()) return path;
  const std::string stem = ::testing::TempDir() + "inferno_long_" + std::to_string(::getpid()) + "_";
  const GgufFile fixture_file = GgufFile::open(fixture("qwen3-tied.gguf"));
  GgufWriter writer(stem + "f32.gguf");
  for (const MetadataEntry& entry : fixture_file.metadata()) {
    const bool context = entry.key == "qwen3.context_length";
    writer.set(entry.key, context ? MetadataValue(uint32_t{2048}) : entry.value);
  }
  for (const GgufTensor& tensor : fixture_file.tensors()) writer.add_tensor(tensor.name, *tensor.dtype, tensor.shape);
  for (const GgufTensor& tensor : fixture_file.tensors()) {
    std::vector<std::byte> bytes(tensor.bytes);
    fixture_file.read_tensor(tensor, bytes);
    writer.write_data(bytes);
  }
  writer.finish();
  path = stem + type + ".gguf";
  files.paths["f32"] = stem + "f32.gguf";
  if (type != "f32") quantize_model(GgufFile::open(stem + "f32.gguf"), path, type, {.threads = 1});
  return path;
}

inline std::unique_ptr<Engine> make_engine(const std::string& path, const std::string& backend, DType kv = DType::f32,
                                           bool all_logits = false) {
  EngineOptions options;
  options.backend = backend;
  options.kv_dtype = kv;
  options.all_logits = all_logits;
  return std::make_unique<Engine>(open_model(path), options);
}

// Logits of every position, fed in chunks of `chunk` tokens (0: as large as they may be).
inline std::vector<float> all_logits(Engine& engine, std::span<const int32_t> tokens, int32_t chunk = 0) {
  const auto vocabulary = static_cast<size_t>(engine.model().config().vocabulary);
  const int32_t most = engine.decoder().limits().max_logit_rows;
  const auto step = static_cast<size_t>(chunk == 0 ? most : std::min(chunk, most));
  std::vector<float> rows(tokens.size() * vocabulary);
  BareSequence sequence(engine);
  for (size_t first = 0; first < tokens.size(); first += step) {
    const size_t count = std::min(step, tokens.size() - first);
    sequence.forward(static_cast<int32_t>(first), tokens.subspan(first, count), static_cast<int32_t>(count));
    engine.decoder().download_logits(std::span(rows).subspan(first * vocabulary, count * vocabulary));
  }
  return rows;
}

// Tokens after the prompt; end tokens are tokens like others.
inline std::vector<int32_t> generate_ids(Engine& engine, std::span<const int32_t> prompt, int32_t count,
                                         const SamplingSettings& sampling = {}) {
  Request request{.prompt = {prompt.begin(), prompt.end()}, .sampling = sampling, .max_new_tokens = count};
  request.stop_at_end = false;
  return generate(engine, std::move(request)).samples.front().ids;
}

inline double rms_difference(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// A NaN in either is beyond any limit.
inline double max_difference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double{a[i]} - b[i]);
    most = std::isnan(difference) ? INFINITY : std::max(most, difference);
  }
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
  const std::vector<int32_t> made = generate_ids(engine, prompt, static_cast<int32_t>(expected.size()));
  size_t same = 0;
  while (same < made.size() && same < expected.size() && made[same] == expected[same]) ++same;
  if (same == expected.size()) return {same, INFINITY};
  if (!margins.empty()) return {same, margins[same]};
  std::vector<int32_t> sequence = prompt;
  sequence.insert(sequence.end(), expected.begin(), expected.begin() + static_cast<ptrdiff_t>(same));
  BareSequence(engine).forward(0, sequence, 1);
  std::vector<float> row(static_cast<size_t>(engine.model().config().vocabulary));
  engine.decoder().download_logits(row);
  std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
  return {same, double{row[0]} - row[1]};
}

}  // namespace inferno::testing
