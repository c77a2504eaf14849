// A model loaded onto a backend: configuration, weights and rotation tables. Immutable; it owns no sequence state.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/progress.h"
#include "file/model_file.h"
#include "model/config.h"
#include "model/layer_weights.h"
#include "model/split.h"

namespace inferno {

// What the inputs of all layers are made of, of n elements each: a table by token, [vocabulary, layers * n], and a
// projection of the embedding, [layers * n, d], whose parts have a norm, [n].
struct LayerInputWeights {
  std::unique_ptr<Weight> table, proj, norm;
};

// What an encoder has beside its layers; null: it does not.
struct EncoderWeights {
  std::unique_ptr<Weight> positions;                       // [context, d]
  std::unique_ptr<Weight> types;                           // [types, d]
  std::unique_ptr<Weight> embedding_norm, embedding_bias;  // [d]
  std::unique_ptr<Weight> dense[2];                        // [dense[0], d], [dense[1], dense[0]]
  std::unique_ptr<Weight> class_layer, class_layer_bias;   // [d, d], [d]
  std::unique_ptr<Weight> classes, classes_bias;           // [classes, d], [classes]
};

class Model {
 public:
  // `config` is the file's (read_config). Reads every weight, or a rank's share of them; a missing, misshapen or
  // unsupported tensor is an Error that names it. `context` is the most positions a sequence will have.
  // Progress is counted in bytes of the file.
  Model(Backend& backend, const ModelFile& file, const ModelConfig& config, int32_t context,
        const OnProgress& on_progress = {}, std::optional<ModelShare> share = {});

  // Heads and rows are those of this rank's share; width and vocabulary are the model's.
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const ModelShare& share() const { return share_; }
  [[nodiscard]] int32_t context() const { return context_; }
  // [vocabulary of this rank, d]; as all that is outside of layers, where share().has_ends().
  [[nodiscard]] const Weight& embedding() const { return *embedding_; }
  // Null where layers have no inputs of their own.
  [[nodiscard]] const LayerInputWeights& layer_inputs() const { return inputs_; }
  [[nodiscard]] const Weight& output_norm() const { return *output_norm_; }          // where the config has one
  [[nodiscard]] const Weight& head() const { return head_ ? *head_ : *embedding_; }  // tied when the file has none
  // Empty where the share does not have that layer.
  [[nodiscard]] const LayerWeights& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }
  // The rotation of a layer: without a table when it has none. Layers of the same rotation share a table.
  [[nodiscard]] RopeParams rope(int32_t layer) const;
  // The table of queries where it is another one, else none.
  [[nodiscard]] Tensor query_rope(int32_t layer) const;
  [[nodiscard]] const EncoderWeights& encoder() const { return encoder_; }
  [[nodiscard]] uint64_t weight_bytes() const { return weight_bytes_; }

 private:
  ModelShare share_;
  ModelConfig config_;
  int32_t context_;
  std::unique_ptr<Weight> embedding_, output_norm_, head_;
  LayerInputWeights inputs_;
  EncoderWeights encoder_;
  std::vector<LayerWeights> layers_;
  std::vector<Buffer> rope_tables_, query_rope_tables_;  // of ModelConfig::ropes; of queries, empty without temperature
  uint64_t weight_bytes_ = 0;
};

}  // namespace inferno
