// A model loaded onto a backend: configuration, weights and the rotation table. Immutable; it owns no sequence state.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "file/model_file.h"
#include "model/config.h"

namespace inferno {

struct LayerWeights {
  std::unique_ptr<Weight> attn_norm;       // [d]
  std::unique_ptr<Weight> wq, wk, wv;      // [heads * head_dim, d]
  std::unique_ptr<Weight> bq, bk, bv;      // [heads * head_dim], null without biases
  std::unique_ptr<Weight> q_norm, k_norm;  // [head_dim], null without QK-norm
  std::unique_ptr<Weight> wo;              // [d, q_heads * head_dim]
  std::unique_ptr<Weight> ffn_norm;        // [d]
  std::unique_ptr<Weight> gate, up, down;  // [ffn, d], [ffn, d], [d, ffn]
};

class Model {
 public:
  // `config` is the file's (read_config). Reads every weight; a missing, misshapen or unsupported tensor is an Error
  // that names it. `context` is the most positions a sequence will have.
  Model(Backend& backend, const ModelFile& file, ModelConfig config, int32_t context, bool quiet);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] int32_t context() const { return context_; }
  [[nodiscard]] const Weight& embedding() const { return *embedding_; }  // [vocabulary, d]
  [[nodiscard]] const Weight& output_norm() const { return *output_norm_; }
  [[nodiscard]] const Weight& head() const { return head_ ? *head_ : *embedding_; }  // tied when the file has none
  [[nodiscard]] const LayerWeights& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }
  [[nodiscard]] const RopeParams& rope() const { return rope_; }
  [[nodiscard]] uint64_t weight_bytes() const { return weight_bytes_; }

 private:
  ModelConfig config_;
  int32_t context_;
  std::unique_ptr<Weight> embedding_, output_norm_, head_;
  std::vector<LayerWeights> layers_;
  Buffer rope_table_;
  RopeParams rope_;
  uint64_t weight_bytes_ = 0;
};

}  // namespace inferno
