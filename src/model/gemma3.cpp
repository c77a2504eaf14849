// Gemma 3: four norms per layer, norms of the heads of q and k, GELU, an embedding scaled by the root of its width.
// Five layers with a window and short waves of rotation, then one without and with long ones.
#include <cmath>

#include "model/config.h"

namespace inferno {
namespace {

constexpr int32_t kPeriod = 6;
constexpr int32_t kLayersOf27B = 62;  // whose scores are scaled by width / heads, not by the head

}  // namespace

void configure_gemma3(const ConfigKeys& keys, ModelConfig& config) {
  RopeConfig local;
  local.rotated_dims = config.ropes[0].rotated_dims;
  local.base = keys.positive("rope.freq_base_swa", 10000.0);
  config.ropes.push_back(local);
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  if (keys.has("final_logit_softcapping")) {
    config.logit_softcap = keys.positive_float("final_logit_softcapping");
  }
  set_windows(keys, config, keys.size("attention.sliding_window"), kPeriod);
  for (LayerConfig& layer : config.layers) {
    layer.rope = layer.window != 0 ? 1 : 0;
    layer.qk_norm = QkNorm::heads;
    layer.post_norms = true;
    layer.activation = Activation::gelu_tanh;
    if (config.layer_count() == kLayersOf27B) {
      layer.attention_scale = 1 / std::sqrt(static_cast<float>(config.width) / static_cast<float>(layer.q_heads));
    }
  }
}

namespace {

// The window is to both sides.
void configure_embedding(const ConfigKeys& keys, ModelConfig& config) {
  configure_gemma3(keys, config);
  config.encoder.only = true;
  for (LayerConfig& layer : config.layers) layer.causal = false;
}

}  // namespace

const Architecture kGemma3 = {"gemma3", configure_gemma3};
const Architecture kGemmaEmbedding = {"gemma-embedding", configure_embedding};

}  // namespace inferno
