// The weights of one layer, and the tensors of a file they come from.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backend/op_args.h"
#include "backend/weight.h"
#include "model/config.h"

namespace inferno {

// Null: what the layer does not have.
struct LayerWeights {
  std::unique_ptr<Weight> attn_norm;                      // [d]
  std::unique_ptr<Weight> wq, wk, wv;                     // [heads * head_dim, d]
  std::unique_ptr<Weight> bq, bk, bv;                     // [heads * head_dim]
  std::unique_ptr<Weight> q_norm, k_norm;                 // [head_dim] or [heads * head_dim]
  std::unique_ptr<Weight> sinks;                          // [q_heads]
  std::unique_ptr<Weight> w_gate;                         // [q_heads * head_dim, d] or [q_heads, d]
  std::unique_ptr<Weight> wo, bo;                         // [d, q_heads * head_dim], [d]
  std::unique_ptr<Weight> attn_post_norm;                 // [d]
  std::unique_ptr<Weight> ffn_norm;                       // [d]
  std::unique_ptr<Weight> gate, up, down;                 // [ffn, d], [ffn, d], [d, ffn]
  std::unique_ptr<Weight> gate_bias, up_bias, down_bias;  // [ffn], [ffn], [d]
  std::unique_ptr<Weight> ffn_post_norm;                  // [d]
  // Of the residual stream: [d] each.
  std::unique_ptr<Weight> attn_sum_norm, attn_sum_norm_bias, ffn_sum_norm, ffn_sum_norm_bias;

  // A recurrent layer: what goes into its convolution, [channels, d], and its taps, [channels * taps]; wo is its output
  // projection. short_conv: the gates of input and output, [channels, d].
  std::unique_ptr<Weight> conv_in, conv, conv_factor, conv_gate;
  // delta_net: [v_heads * head_dim, d], [v_heads, d], [v_heads], [head_dim].
  std::unique_ptr<Weight> z, beta, alpha, decay, dt, value_norm;
  // mamba2: z, alpha, which is its step, decay and dt as above with its heads; value_norm [heads * head_dim],
  // [channels], [heads].
  std::unique_ptr<Weight> conv_bias, skip;

  // Latent attention: wq, or [query_rank, d], [query_rank] and [q_heads * (kept + rotated), query_rank]; [rank +
  // rotated, d], [rank]; [q_heads, rank, kept], [q_heads, value_dim, rank].
  std::unique_ptr<Weight> q_a, q_a_norm, q_b, kv_a, kv_a_norm, k_b, v_b;

  // An input of the layer alone, of n elements: [n, d], [d, n], [d].
  std::unique_ptr<Weight> input_gate, input_proj, input_norm;

  // A layer with experts: gate, up and down are those of the expert that all tokens have, or null.
  std::unique_ptr<Weight> router, router_bias, selection_bias;           // [experts, d], [experts], [experts]
  std::unique_ptr<Weight> gate_exps, up_exps, down_exps;                 // [experts, ffn, d], [experts, d, ffn]
  std::unique_ptr<Weight> gate_exps_bias, up_exps_bias, down_exps_bias;  // [experts * ffn], [experts * d]
  std::unique_ptr<Weight> shared_gate;                                   // [d]
  // ExpertsConfig::beside_mlp: of the expert of all tokens, of the router, and before and after the others; their
  // scales.
  std::unique_ptr<Weight> shared_post_norm, router_norm, experts_norm, experts_post_norm;  // [d]
  std::unique_ptr<Weight> expert_scale;                                                    // [experts]
};

// Which part of a weight a rank has (split.h).
enum class SplitBy : uint8_t {
  whole,           // all of it
  q_rows,          // rows of its query heads
  kv_rows,         // rows of its kv heads
  q_columns,       // columns of its query heads
  ffn_rows,        // its rows of the MLP, or of each expert
  ffn_columns,     // the columns that go with them
  shared_rows,     // the same of the expert that all tokens have
  shared_columns,  //
  first_rank,      // all of it on rank 0, nothing elsewhere: what is added once
};

// A weight that a layer has, and where it comes from: a tensor of that name and shape, or some rows of another.
// Matrices are multiplied, vectors read as f32.
struct LayerTensor {
  std::string_view part;  // "attn_q.weight", see layer_tensor_name
  Shape shape;            // of the weight
  std::unique_ptr<Weight> LayerWeights::* weight;
  SplitBy split = SplitBy::whole;
  std::string_view fused_part = {};  // the tensor that has these rows among others; empty: a tensor of its own
  int64_t fused_rows = 0;            // of that tensor; of several matrices: of each
  int64_t first_row = 0;             // the same
  // Of rows: the tensor is so many blocks of fused_rows rows, and the weight has the same part of each.
  int64_t blocks = 1;
  Shape file_shape = {};  // of the tensor, where it has another one with the same elements; rank 0: `shape`
};

// All weights of a layer of a model of that width, in the order files have them.
[[nodiscard]] std::vector<LayerTensor> layer_tensors(const ModelConfig& config, int32_t index);

}  // namespace inferno
