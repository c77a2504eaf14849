// Nemotron-H and Nemotron 3: each layer is one of Mamba-2, attention without rotation, and an MLP or experts, all
// behind a norm that is called attn_norm. The lists of key-value heads and of MLP sizes say which. The MLP has no gate.
#include "base/error.h"
#include "model/config.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

void configure(const ConfigKeys& keys, ModelConfig& config) {
  const RecurrentConfig mamba = read_mamba2(keys);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.rope = kNoRope;
    layer.gated = false;
    layer.activation = Activation::relu_squared;
    layer.ffn_norm_tensor = "attn_norm.weight";
    if (layer.ffn > 0 && layer.kv_heads > 0) {
      fail("\"{}\": layer {} has both attention and an MLP ({}, {})", keys.file().path(), i,
           keys.key("attention.head_count_kv"), keys.key("feed_forward_length"));
    }
    layer.mlp = layer.ffn > 0;
    if (layer.kv_heads == 0) set_recurrent(layer, layer.mlp ? Mixer::none : Mixer::mamba2, mamba);
  }
}

void configure_moe(const ConfigKeys& keys, ModelConfig& config) {
  configure(keys, config);
  set_experts(keys, config, 0, {.score = RouterScore::sigmoid, .normalize = true});
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    if (!layer.mlp) layer.experts = {};
    const std::string latent = layer_tensor_name(static_cast<int32_t>(i), "ffn_latent_down.weight");
    if (keys.file().find_tensor(latent) != nullptr) {
      fail("\"{}\" has the tensor {}: experts behind a narrower input are not supported", keys.file().path(), latent);
    }
  }
}

}  // namespace

const Architecture kNemotronH = {"nemotron_h", configure};
const Architecture kNemotronHMoe = {"nemotron_h_moe", configure_moe};

}  // namespace inferno
