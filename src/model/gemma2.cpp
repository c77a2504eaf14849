// Gemma 2: four norms per layer, GELU, scaled embedding, soft caps on scores and logits, every other layer with a
// window.
#include <cmath>

#include "model/config.h"

namespace inferno {
namespace {

constexpr int32_t kPeriod = 2;
constexpr int32_t kLayersOf27B = 46;  // whose scores are scaled by width / heads, not by the head

void configure(const ConfigKeys& keys, ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  config.logit_softcap = keys.positive_float("final_logit_softcapping", 30.0);
  const float softcap = keys.positive_float("attn_logit_softcapping", 50.0);
  set_windows(keys, config, keys.size("attention.sliding_window"), kPeriod);
  for (LayerConfig& layer : config.layers) {
    layer.softcap = softcap;
    layer.post_norms = true;
    layer.activation = Activation::gelu_tanh;
    if (config.layer_count() == kLayersOf27B) {
      layer.attention_scale = 1 / std::sqrt(static_cast<float>(config.width) / static_cast<float>(layer.q_heads));
    }
  }
}

}  // namespace

const Architecture kGemma2 = {"gemma2", configure};

}  // namespace inferno
