// Shapes of well-known models, and a tiny one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace inferno {

struct ModelShape {
  std::string_view name;
  std::string_view architecture;
  uint32_t layers, width, ffn, q_heads, kv_heads, head_dim, vocabulary, context;
  float rope_base, norm_eps;
  bool tied;                  // the embedding is the output head too
  bool rope_factors;          // Llama 3's
  uint32_t experts = 0;       // of every layer, each `ffn` wide; 0: none
  uint32_t experts_used = 0;  // by a token
  uint32_t rotated_dims = 0;  // of a head; 0: all
  // Heads of layers with the delta rule, in three of four layers; 0: there are none.
  uint32_t state_k_heads = 0, state_v_heads = 0, state_dim = 0;
  uint32_t window = 0;  // of the layers that have one, in the family's own pattern; 0: the family has none
};

// "qwen3-0.6b, tiny, ...": for messages.
[[nodiscard]] std::string model_shape_names();
// An unknown name is a usage Error that lists the known ones.
[[nodiscard]] const ModelShape& find_model_shape(std::string_view name);

}  // namespace inferno
