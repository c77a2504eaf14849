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
#include "comm/rank_messages.h"
#include "kv/kv_cache.h"
#include "model/model.h"

namespace inferno {

// What the layers of a model need of a cache.
[[nodiscard]] std::vector<KvLayerShape> cache_layers(const ModelConfig& config);
// The same of a rank: nothing for layers of other stages.
[[nodiscard]] std::vector<KvLayerShape> cache_layers(const ModelConfig& whole, const ModelShare& share);

struct StepLimits {
  int32_t max_tokens = 0;  // of one step; longer prompts run in chunks; 0: as many as the backend likes (Engine)
  int32_t max_sequences = 1;
  int32_t max_logit_rows = 1;
};

// How the ranks of a split model reach each other.
struct RankLink {
  Communicator* ranks = nullptr;                    // null: one rank
  RankMessages* messages = nullptr;                 // the leader's
  std::span<const int32_t> vocabulary_begins = {};  // of each rank, and the end; read when a decoder is made
  DType wire = DType::f32;                          // of sums
};

// Tokens of each of the parts that a step is cut into, so that stages compute at the same time.
[[nodiscard]] int32_t part_tokens(int32_t tokens, int32_t stages);

class Decoder {
 public:
  // Of a model that is split over ranks each rank has a decoder; the leader's tells the others what to run.
  Decoder(Backend& backend, const Model& model, const KvCache& cache, const StepLimits& limits,
          const RankLink& ranks = {});

  // Starts a new step.
  void clear() {
    batch_.clear();
    sequences_.clear();
  }
  // Adds tokens of a sequence at positions first, first + 1, ...; its pages must reach that far, and states of it must
  // end there.
  // Logits are computed for the last `logit_rows` of them.
  void add(const KvSequence& sequence, int32_t first, std::span<const int32_t> tokens, int32_t logit_rows);
  // Runs the step. With requests, one per logit row in order, a token is drawn for each; then the logits themselves
  // are only there to be downloaded, where the model is split over ranks, if `shows_logits`.
  void run(std::span<const SampleRequest> requests = {}, bool shows_logits = false);

  // ---- of a model split over ranks
  // On the leader: before the next step the others copy that page, too.
  void note_copy(int32_t from, int32_t to);
  // On the others: what the leader's run() sent.
  void follow(std::span<const int32_t> words, KvCache& cache);

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
  void add(std::span<const int32_t> pages, int32_t state_slot, int32_t first, std::span<const int32_t> tokens,
           int32_t logit_rows);
  void execute(bool sample);
  void record(const StepBatch& batch, TokenRange needed, bool sample);
  void record_layers(const StepBatch& batch, const Tensor& x, TokenRange needed);
  void record_embedding(const Tensor& ids, const Tensor& x);
  void record_logits(const StepBatch& batch, const Tensor& stream, bool sample);
  // What each layer has of a token for itself, [T, layers * n]; empty where there is none.
  [[nodiscard]] Tensor record_layer_inputs(const Tensor& ids, const Tensor& x);
  // Tensors of a step one after another in mixer_memory_.
  class Rows;
  // Floats that parts of the mixers' memory are a multiple of, and how many parts there are at most.
  static constexpr int64_t kMixerAlignment = 16;
  static constexpr int64_t kMixerParts = 8;
  // Each adds its part of layer `index` to the residual stream x. Of the last layer only the `needed`
  // tokens are computed to the end; false: none are, only what the layer keeps of them.
  [[nodiscard]] bool record_mixer(int32_t index, const StepBatch& batch, const Tensor& x, TokenRange needed);
  [[nodiscard]] bool record_attention(int32_t index, const StepBatch& batch, const Tensor& x, TokenRange needed);
  [[nodiscard]] bool record_latent_attention(int32_t index, const StepBatch& batch, const Tensor& x, TokenRange needed);
  [[nodiscard]] bool record_recurrent(int32_t index, const StepBatch& batch, const Tensor& x, TokenRange needed);
  // What these make of the normalized stream h, before the projection back.
  [[nodiscard]] Tensor record_short_conv(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows);
  [[nodiscard]] Tensor record_delta_net(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows);
  [[nodiscard]] Tensor record_mamba2(int32_t index, const StepBatch& batch, const Tensor& h, Rows& rows);
  void record_output(int32_t index, const Tensor& y, const Tensor& x, TokenRange needed);
  void record_mlp(int32_t index, const Tensor& x);
  void record_experts(int32_t index, const Tensor& x);
  void record_layer_input(int32_t index, const Tensor& x, const Tensor& inputs);

  // ---- of a model split over ranks (decoder_ranks.cpp)
  // One rank with a link does what several do.
  [[nodiscard]] bool is_split() const { return model_.share().divides() || (ranks_.ranks != nullptr && !has_stages()); }
  // What is added once, the first of the ranks that share a layer adds.
  [[nodiscard]] bool adds_residual() const { return model_.share().rank == 0; }
  [[nodiscard]] bool has_stages() const { return model_.share().stages > 1; }
  // The rank that has in that stage what this one has in its own.
  [[nodiscard]] int32_t rank_in(int32_t stage) const { return stage * model_.share().ranks + model_.share().rank; }
  // A step in parts, so that stages compute at the same time: one has the next part while another has this one.
  void execute_parts(bool sample);
  void take_part(int32_t begin, int32_t count);
  void record_pass(const Tensor& x, int32_t from_stage, int32_t to_stage, const Tensor& rows = {});
  void prepare_ranks();
  void note_sequence(std::span<const int32_t> pages, int32_t first, std::span<const int32_t> tokens,
                     int32_t logit_rows);
  void send_step(int32_t candidates);
  // How many of each rank's logits the draws can depend on; 0: on all of them.
  [[nodiscard]] static int32_t candidates_of(std::span<const SampleRequest> requests);
  void record_sum(const Tensor& x);
  // x += residual_scale * post_norm(the sum over ranks of y), where a norm keeps the sum from being x itself.
  void record_normed_sum(const Weight& post_norm, const Tensor& y, const Tensor& x);

  Backend& backend_;
  const Model& model_;
  const KvCache& cache_;
  StepLimits limits_;
  RankLink ranks_;
  std::vector<int32_t> sequences_;  // of a step, for the other ranks: see follow()
  std::vector<int32_t> message_;
  std::vector<int32_t> copies_;
  int32_t candidates_ = 0;   // of the step: AllGatherArgs::most
  int32_t part_tokens_ = 0;  // of the step: tokens of each of its parts, where there are stages
  HostBatch batch_;
  HostBatch part_;  // of a step; empty without stages
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
  Buffer part_memory_;     // [max_logit_rows, vocabulary of this rank], where the model is split
  Buffer begins_memory_;   // the first column of each rank, and the end
  Buffer sum_memory_;      // [max_tokens, d], where sums are normalized before they are added
  Buffer rows_memory_;     // [max_logit_rows, d], of the last stage, on the first
  Buffer row_ids_memory_;  // 0, 1, 2, ...: all of these rows
  Buffer request_memory_;  // HostSampleBatch::request_bytes
  Buffer result_memory_;   // HostSampleBatch::result_bytes
};

}  // namespace inferno
