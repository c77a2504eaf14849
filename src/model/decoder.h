// The forward pass: one step of tokens through the whole transformer, written once for every backend.
//
// A Decoder holds the memory of one step in flight (activations, the batch, logits) for a model and a cache; all of it
// is allocated when it is made, when it also plans the backend's scratch memory. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/sampling.h"
#include "backend/step_batch.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace inferno {

struct StepLimits {
  int32_t max_tokens = 0;  // of one step; longer prompts run in chunks; 0: as many as the backend likes (Engine)
  int32_t max_sequences = 1;
  int32_t max_logit_rows = 1;
};

// How one logit row is sampled: parameters and the tokens the repetition penalty looks back on, latest last.
struct SampleRequest {
  SampleParams params;
  std::span<const int32_t> history;
};

class Decoder {
 public:
  Decoder(Backend& backend, const Model& model, KvCache& cache, const StepLimits& limits);

  // Starts a new step.
  void clear() { batch_.clear(); }
  // Adds tokens of a sequence at positions first, first + 1, ...; the cache must have room for them (KvCache::resize).
  // Logits are computed for the last `logit_rows` of them.
  void add(int32_t sequence, int32_t first, std::span<const int32_t> tokens, int32_t logit_rows);
  // Runs the step. With requests, one per logit row in order, a token is drawn for each.
  void run(std::span<const SampleRequest> requests = {});

  [[nodiscard]] const StepLimits& limits() const { return limits_; }
  [[nodiscard]] int32_t logit_rows() const { return batch_.logit_rows(); }
  // The drawn tokens of the last step.
  [[nodiscard]] std::span<const int32_t> sampled() const {
    return std::span(sampled_).first(static_cast<size_t>(batch_.logit_rows()));
  }
  // Logits of the last step, row by row; `out` has logit_rows() * vocabulary elements.
  void download_logits(std::span<float> out);

 private:
  void plan();
  void upload_requests(std::span<const SampleRequest> requests);
  void record(const StepBatch& batch, int32_t unwanted, bool sample);

  Backend& backend_;
  const Model& model_;
  KvCache& cache_;
  StepLimits limits_;
  HostBatch batch_;

  Buffer batch_memory_;              // BatchCapacity::ints() int32
  Buffer x_memory_;                  // [max_tokens, d] the residual stream
  Buffer q_memory_;                  // [max_tokens, q_heads * head_dim] of the widest layer
  Buffer attn_memory_;               // the same
  Buffer logits_memory_;             // [max_logit_rows, vocabulary]
  Buffer request_memory_;            // SampleParams [max_logit_rows], then history [max_logit_rows, kSampleHistory]
  Buffer sampled_memory_;            // int32 [max_logit_rows]
  std::vector<std::byte> requests_;  // the host's copy of request_memory_
  std::vector<int32_t> sampled_;
};

}  // namespace inferno
