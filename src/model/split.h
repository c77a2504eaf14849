// How a model is divided among ranks (docs/scale.md): whole attention heads with the rows of q, k and v and the columns
// of the output projection that belong to them; rows of gate and up with the columns of down; rows of the embedding and
// the head. Everything else is on every rank.
//
// Or in stages, each of so many ranks that follow each other: a stage has some of the layers, divided among its ranks
// as above; the first one also has the embedding and the head.
//
// Columns are cut between the blocks of their type. What cannot be cut so often is an Error that names the tensor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "file/model_file.h"
#include "model/config.h"

namespace inferno {

struct Part {
  int32_t begin = 0;
  int32_t count = 0;
  friend bool operator==(const Part&, const Part&) = default;
};

struct LayerShare {
  Part q_heads;
  Part kv_heads;    // several ranks have the same one where there are fewer than ranks
  Part ffn;         // of the MLP, or of each expert
  Part shared_ffn;  // of the expert that all tokens have
};

// What one rank has.
struct ModelShare {
  int rank = 0;  // among those of its stage
  int ranks = 1;
  int stage = 0;
  int stages = 1;
  Part own_layers;  // of the stage
  Part vocabulary;  // of a rank of the first stage
  std::vector<LayerShare> layers;

  [[nodiscard]] bool is_whole() const { return ranks == 1 && stages == 1; }
  // Whether matrices are divided among ranks.
  [[nodiscard]] bool divides() const { return ranks > 1; }
  [[nodiscard]] bool has_layer(int32_t index) const {
    return index >= own_layers.begin && index < own_layers.begin + own_layers.count;
  }
  // Where the text enters and leaves the model.
  [[nodiscard]] bool has_ends() const { return stage == 0; }
};

// All of the model.
[[nodiscard]] ModelShare whole_share(const ModelConfig& config);
// The shares of `ranks` ranks in `stages` stages, in proportion to `sizes` (empty: equal ones).
[[nodiscard]] std::vector<ModelShare> split_model(const ModelFile& file, const ModelConfig& config, int ranks,
                                                  std::span<const int32_t> sizes = {}, int stages = 1);
// The config as that rank computes with it: its own heads and rows.
[[nodiscard]] ModelConfig config_of(const ModelConfig& whole, const ModelShare& share);

}  // namespace inferno
