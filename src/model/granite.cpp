// Granite 3 and 4: a Llama whose embedding, scores, additions to the residual stream and logits are scaled. Hybrid
// models: most layers are Mamba-2, which have 0 in the list of key-value heads; attention does not rotate unless the
// file says so; some have experts beside one that all tokens have.
#include "model/config.h"

namespace inferno {
namespace {

void configure(const ConfigKeys& keys, ModelConfig& config) {
  const auto scale = [&](const char* suffix, double fallback) { return keys.positive_float(suffix, fallback); };
  config.ropes[0].pairing = RopePairing::interleaved;
  config.embedding_scale = scale("embedding_scale", 1);
  config.residual_scale = scale("residual_scale", 1);
  config.logit_scale = 1 / scale("logit_scale", 1);
  if (!keys.has("attention.scale")) return;
  for (LayerConfig& layer : config.layers) layer.attention_scale = scale("attention.scale", 1);
}

void configure_hybrid(const ConfigKeys& keys, ModelConfig& config) {
  configure(keys, config);
  const RecurrentConfig mamba = read_mamba2(keys);
  const bool rotates = keys.file().find_bool(keys.key("rope.scaling.finetuned")).value_or(true);
  for (LayerConfig& layer : config.layers) {
    if (!rotates) layer.rope = kNoRope;
    if (layer.kv_heads == 0) set_recurrent(layer, Mixer::mamba2, mamba);
  }
  if (keys.file().find_uint(keys.key("expert_count")).value_or(0) == 0) return;
  set_experts(keys, config, 0, {.score = RouterScore::softmax, .normalize = true});
}

}  // namespace

const Architecture kGranite = {"granite", configure};
const Architecture kGraniteHybrid = {"granitehybrid", configure_hybrid};

}  // namespace inferno
