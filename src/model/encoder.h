// Texts to rows: the forward pass of models that look at whole texts (embeddings, scores of pairs).
//
// Nothing is kept between steps, so a step has whole texts, and there is no cache: keys and values are in memory of one
// layer, which every layer writes anew. Several texts are one step; on a CPU a text's rows do not depend on its mates.
// An Encoder holds the memory of one step; all of it is allocated when it is made, when it also plans the backend's
// scratch memory. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/step_batch.h"
#include "model/model.h"

namespace inferno {

struct EncoderLimits {
  int32_t max_tokens = 0;  // of a step: the longest text
  int32_t max_texts = 1;   // of a step
};

class Encoder {
 public:
  // A model whose layers are not all plain attention and a plain MLP is an Error.
  Encoder(Backend& backend, const Model& model, const EncoderLimits& limits);

  [[nodiscard]] const EncoderLimits& limits() const { return limits_; }
  // Starts a new step.
  void clear();
  // False, with nothing changed, when the step has no room for it. Tokens from `second` on are of the pair's second
  // text.
  [[nodiscard]] bool add(std::span<const int32_t> ids, int32_t second);
  // Runs the step; rows() are its results.
  void run();
  // [tokens, d], text after text, normalized as the model says.
  [[nodiscard]] std::span<const float> rows() const { return rows_; }

  // x [n, cols of w] times w, transposed, plus bias (null: none): layers after the pooling. n is at most max_texts.
  [[nodiscard]] std::vector<float> multiply(std::span<const float> x, const Weight& w, const Weight* bias);

 private:
  void plan();
  void record(const StepBatch& batch);
  void record_layer(int32_t index, const StepBatch& batch, const Tensor& x);
  // Into `out`, which may be x, as the model's norms are.
  void record_norm(const Tensor& x, const Weight* weight, const Weight* bias, const Tensor& out);
  [[nodiscard]] KvLayerView memory_of(const LayerConfig& layer) const;

  Backend& backend_;
  const Model& model_;
  EncoderLimits limits_;
  HostBatch batch_;
  std::vector<int32_t> types_;  // [max_tokens] 0 or 1
  std::vector<int32_t> pages_;  // of one text
  int32_t next_page_ = 0;
  std::vector<float> rows_;

  Buffer batch_memory_;   // BatchCapacity::ints() int32
  Buffer types_memory_;   // [max_tokens] int32
  Buffer x_memory_;       // [max_tokens, d] the residual stream
  Buffer h_memory_;       // [max_tokens, d]
  Buffer q_memory_;       // [max_tokens, q_heads * head_dim] of the widest layer
  Buffer attn_memory_;    // the same
  Buffer kv_memory_;      // keys, then values, of the largest layer
  Buffer pooled_memory_;  // [max_texts, widest] in, and the same out
};

}  // namespace inferno
