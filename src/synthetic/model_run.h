// A model with its cache and decoder, fed token ids: whole steps without text, requests or a file, for tests and
// benchmarks of backends.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "file/model_file.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "model/model.h"

namespace inferno {

struct RunLimits {
  int32_t context = 512;
  int32_t max_tokens = 512;  // of one step; not more than the context
  int32_t max_sequences = 1;
  DType kv = DType::bf16;
};

class ModelRun {
 public:
  // `ranks`: of one rank alone, which then does all that several do.
  ModelRun(Backend& backend, const ModelFile& file, const RunLimits& limits, const RankLink& ranks = {});

  // Runs `tokens`, at most max_tokens, as the next positions of a sequence; a token is drawn from the last if `sample`.
  void prefill(int32_t sequence, std::span<const int32_t> tokens, bool sample = true);
  // One token for each of the first `sequences` sequences: the one drawn last.
  void decode(int32_t sequences);
  // The same and, in the same step, `tokens` as the next positions of another sequence, after the first ones.
  void decode_beside(int32_t sequences, int32_t other, std::span<const int32_t> tokens);
  // The tokens that the last decode step of `other` was fed become those of the next one here.
  void follow(const ModelRun& other) { last_ = other.fed_; }
  void set_sampling(const SamplingSettings& settings) { settings_ = settings; }
  // Empties all sequences.
  void reset();

  // Of the last step that drew tokens, one row per sequence in it.
  [[nodiscard]] std::span<const int32_t> sampled() const { return decoder_.sampled(); }
  [[nodiscard]] std::vector<float> logits();
  [[nodiscard]] const Model& model() const { return model_; }
  [[nodiscard]] KvCache& cache() { return cache_; }

 private:
  void add(int32_t sequence, std::span<const int32_t> tokens, bool sample);
  void run();

  RunLimits limits_;
  Model model_;
  KvCache cache_;
  Decoder decoder_;
  struct Sequence {
    explicit Sequence(KvCache& cache) : kv(cache) {}
    KvSequence kv;
    int32_t length = 0;
  };
  std::vector<std::unique_ptr<Sequence>> sequences_;
  SamplingSettings settings_;
  std::vector<SampleRequest> requests_;  // of the step being put together
  std::vector<int32_t> last_;            // drawn last, per sequence
  std::vector<int32_t> fed_;             // to the last decode step
};

}  // namespace inferno
