// GLM-4.5, 4.6 and 4.7: biases on q, k and v, norms of heads in the large ones, part of a head rotates; a dense layer
// or more, then experts beside one that all tokens have. What it calls post_attention_norm is the norm before the MLP.
#include "model/config.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

void configure(const ConfigKeys& keys, ModelConfig& config) {
  const bool norms = keys.file().find_tensor(layer_tensor_name(0, "attn_q_norm.weight")) != nullptr;
  for (LayerConfig& layer : config.layers) {
    layer.qk_norm = norms ? QkNorm::heads : QkNorm::none;
    layer.ffn_norm_tensor = "post_attention_norm.weight";
  }
  set_experts(keys, config, leading_dense_layers(keys, config), {.score = RouterScore::sigmoid, .normalize = true});
}

}  // namespace

const Architecture kGlm4Moe = {"glm4moe", configure};

}  // namespace inferno
