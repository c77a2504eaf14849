// The forward pass: one step of tokens through the whole transformer, written once for every backend.
//
// A Decoder holds the memory of one step in flight (activations, the batch, logits) for a model and a cache; all of it
// is allocated when it is made, when it also plans the backend's scratch memory. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/sampling_batch.h"
#include "backend/step_batch.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace inferno {

// What the layers of a model need of a cache.
[[nodiscard]] std::vector<KvLayerShape> cache_layers(const ModelConfig& config);

struct StepLimits {
  int32_t max_tokens = 0;  // of one step; longer prompts run in chunks; 0: as many as the backend likes (Engine)
  int32_t max_sequences = 1;
  int32_t max_logit_rows = 1;
};

class Decoder {
 public:
  Decoder(Backend& backend, const Model& model, const KvCache& cache, const StepLimits& limits);

  // Starts a new step.
  void clear() { batch_.clear(); }
  // Adds tokens of a sequence at positions first, first + 1, ...; its pages must reach that far, and states of it must
  // end there.
  // Logits are computed for the last `logit_rows` of them.
  void add(const KvSequence& sequence, int32_t first, std::span<const int32_t> tokens, int32_t logit_rows);
  // Runs the step. With requests, one per logit row in order, a token is drawn for each.
  void run(std::span<const SampleRequest> requests = {});

  [[nodiscard]] const StepLimits& limits() const { return limits_; }
  [[nodiscard]] int32_t logit_rows() const { return batch_.logit_rows(); }
  // The drawn tokens of the last step that had requests; kNothingAllowed or kNotFinite where there was none to draw.
  [[nodiscard]] std::span<const int32_t> sampled() const { return samples_.sampled(); }
  // Of that step: the drawn token, then the top n, best first. Valid until the next step.
  [[nodiscard]] std::span<const TokenLogprob> logprobs(int32_t row) { return samples_.logprobs(row); }
  // Logits of the last step, row by row; `out` has logit_rows() * vocabulary elements.
  void download_logits(std::span<float> out);

 private:
  void plan();
  void record(const StepBatch& batch, int32_t first_needed_token, bool sample);
  // What each layer has of a token for itself, [T, layers * n]; empty where there is none.
  [[nodiscard]] Tensor record_layer_inputs(const Tensor& ids, const Tensor& x);
  // Tensors of a step one after another in mixer_memory_.
  class Rows;
  // Each adds its part of layer `index` to the residual stream x. Of the last layer only tokens from
  // `first_needed_token` on are computed to the end; false: none are, only what the layer keeps of them.
  [[nodiscard]] bool record_mixer(int32_t index, const StepBatch& batch, const Tensor& x, int32_t first_needed_token);
  [[nodiscard]] bool record_attention(int32_t index, const StepBatch& batch, const Tensor& x,
                                      int32_t first_needed_token);
  [[nodiscard]] bool record_latent_attention(int32_t index, const StepBatch& batch, const Tensor& x,
                                             int32_t first_needed_token);
  [[nodiscard]] bool record_recurrent(int32_t index, const StepBatch& batch, const Tensor& x,
                                      int32_t first_needed_token);
  // What these make of the normalized stream h, before the projection back.
  [[nodiscard]] Tensor record_short_conv(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows);
  [[nodiscard]] Tensor record_delta_net(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows);
  [[nodiscard]] Tensor record_mamba2(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows);
  void record_output(int32_t index, const Tensor& y, const Tensor& x, int32_t first);
  void record_mlp(int32_t index, const Tensor& x);
  void record_experts(int32_t index, const Tensor& x);
  void record_layer_input(int32_t index, const Tensor& x, const Tensor& inputs);

  Backend& backend_;
  const Model& model_;
  const KvCache& cache_;
  StepLimits limits_;
  HostBatch batch_;
  HostSampleBatch samples_;

  Buffer batch_memory_;    // BatchCapacity::ints() int32
  Buffer x_memory_;        // [max_tokens, d] the residual stream
  Buffer q_memory_;        // [max_tokens, q_heads * head_dim] of the widest layer
  Buffer attn_memory_;     // the same
  Buffer gate_memory_;     // [max_tokens, gate width], where a layer has an output gate
  Buffer mixer_memory_;    // [max_tokens, mixer width], where a layer is recurrent or has latent attention
  Buffer input_memory_;    // [max_tokens, layers * n], where layers have inputs of n elements
  Buffer shared_memory_;   // [max_tokens, d], where a layer has an expert that all tokens have
  Buffer logits_memory_;   // [max_logit_rows, vocabulary]
  Buffer request_memory_;  // HostSampleBatch::request_bytes
  Buffer result_memory_;   // HostSampleBatch::result_bytes
};

}  // namespace inferno
