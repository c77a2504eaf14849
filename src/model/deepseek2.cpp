// DeepSeek V2 and V3, Kimi K2, GLM-4.7-Flash: latent attention, whose cache has one row per position for all heads, and
// experts, some in groups, beside one that all tokens have.
#include <cmath>

#include "base/error.h"
#include "model/config.h"

namespace inferno {
namespace {

LatentConfig read_latent(const ConfigKeys& keys, const LayerConfig& layer, int32_t rotated) {
  const std::string& path = keys.file().path();
  LatentConfig latent;
  latent.rank = keys.size("attention.kv_lora_rank");
  latent.query_rank = keys.find_size("attention.q_lora_rank").value_or(0);
  latent.rotated = rotated;
  const int32_t key = keys.size("attention.key_length_mla");
  latent.value_dim = keys.size("attention.value_length_mla");
  if (key <= rotated) {
    fail("\"{}\": {} is {}, must be more than the {} elements that rotate", path, keys.key("attention.key_length_mla"),
         key, rotated);
  }
  latent.kept = key - rotated;
  if (layer.kv_heads != 1 || layer.head_dim != latent.rank + rotated || layer.value_dim() != latent.rank) {
    fail("\"{}\": {} key-value heads of {} and {} elements, must be 1 of {} and {} ({}, {})", path, layer.kv_heads,
         layer.head_dim, layer.value_dim(), latent.rank + rotated, latent.rank, keys.key("attention.kv_lora_rank"),
         keys.key("rope.dimension_count"));
  }
  const int64_t widest = int64_t{layer.q_heads} * std::max(key, latent.value_dim);
  if (widest > static_cast<int64_t>(ConfigKeys::kMaxSize)) {
    fail("\"{}\": {} heads of {} elements are more than the {} a layer may have", path, layer.q_heads,
         std::max(key, latent.value_dim), ConfigKeys::kMaxSize);
  }
  return latent;
}

// A stretched context: what rotated elements would grow by, twice, is in the scale of the scores.
double score_growth(const ConfigKeys& keys, const RopeConfig& rope) {
  const double multiplier = keys.file().find_float(keys.key("rope.scaling.yarn_log_multiplier")).value_or(0);
  if (rope.yarn_factor <= 1 || multiplier == 0) return 1;
  const double growth = 1 + multiplier * std::log(rope.yarn_factor);
  if (!std::isfinite(growth) || growth <= 0 || growth > 1e6) {
    fail("\"{}\": {} is {}", keys.file().path(), keys.key("rope.scaling.yarn_log_multiplier"), multiplier);
  }
  return growth * growth;
}

void configure(const ConfigKeys& keys, ModelConfig& config) {
  config.ropes[0].pairing = RopePairing::interleaved;
  const LatentConfig latent = read_latent(keys, config.layers[0], config.ropes[0].rotated_dims);
  const double scale = score_growth(keys, config.ropes[0]) / std::sqrt(latent.kept + latent.rotated);
  for (LayerConfig& layer : config.layers) {
    layer.mixer = Mixer::latent_attention;
    layer.latent = latent;
    layer.attention_scale = static_cast<float>(scale);
    layer.kv_heads = 1;
  }
  if (keys.file().find_uint(keys.key("expert_count")).value_or(0) == 0) return;
  set_experts(keys, config, leading_dense_layers(keys, config), {.score = RouterScore::softmax, .normalize = false});
}

}  // namespace

const Architecture kDeepSeek2 = {"deepseek2", configure};

}  // namespace inferno
