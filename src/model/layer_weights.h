// The weights of one layer, and the tensors of a file they come from.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backend/op_args.h"
#include "backend/weight.h"
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

// A tensor that a layer has: what it is called after the layer's number, and the weight it becomes. Matrices are
// multiplied, vectors read as f32.
struct LayerTensor {
  std::string_view part;  // "attn_q.weight", see layer_tensor_name
  Shape shape;
  std::unique_ptr<Weight> LayerWeights::* weight;
};

// All tensors of a layer of a model of that width, in the order files have them.
[[nodiscard]] std::vector<LayerTensor> layer_tensors(const LayerConfig& layer, int32_t width);

}  // namespace inferno
