// Gemma 4: as Gemma 3 with heads, key-value heads and rotations that differ between layers with a window and without;
// norms of v, scores that are not scaled, values that may be the keys, and a scale of each layer's result. The last
// layers of E2B and E4B read the cache of earlier ones, and every layer has an input of its own. 26B-A4B has experts
// beside the MLP.
#include <cmath>

#include "base/error.h"
#include "model/config.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

constexpr int32_t kPeriod = 6;

// A tensor of one number.
float read_scale(const ModelFile& file, const std::string& name) {
  const FileTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) return 1;
  float value = 0;
  if (tensor->dtype != DType::f32 || tensor->shape.elements() != 1) {
    fail("\"{}\": {} must be one value of type F32", file.path(), name);
  }
  file.read_tensor(*tensor, std::as_writable_bytes(std::span(&value, 1)));
  if (!std::isfinite(value)) fail("\"{}\": {} holds {}", file.path(), name, value);
  return value;
}

// Heads of layers with a window.
struct LocalHeads {
  int32_t head_dim;
  int32_t value_dim;
};

LocalHeads read_local_heads(const ConfigKeys& keys, const LayerConfig& layer) {
  LocalHeads local{};
  local.head_dim = keys.find_size("attention.key_length_swa").value_or(layer.head_dim);
  local.value_dim = keys.find_size("attention.value_length_swa").value_or(layer.value_dim());
  const int64_t widest = int64_t{layer.q_heads} * std::max(local.head_dim, local.value_dim);
  if (widest > static_cast<int64_t>(ConfigKeys::kMaxSize)) {
    fail("\"{}\": {} heads of {} elements are more than the {} a layer may have", keys.file().path(), layer.q_heads,
         std::max(local.head_dim, local.value_dim), ConfigKeys::kMaxSize);
  }
  return local;
}

RopeConfig read_local_rope(const ConfigKeys& keys, int32_t head_dim) {
  RopeConfig rope;
  rope.base = keys.positive("rope.freq_base_swa", 10000.0);
  rope.rotated_dims = keys.find_size("rope.dimension_count_swa").value_or(head_dim);
  if (rope.rotated_dims % 2 != 0 || rope.rotated_dims > head_dim) {
    fail("\"{}\": {} is {}, must be even and at most the head's {}", keys.file().path(),
         keys.key("rope.dimension_count_swa"), rope.rotated_dims, head_dim);
  }
  return rope;
}

// The last layers have no keys and values: each reads those of the last layer of its kind that has.
void share_caches(const ConfigKeys& keys, ModelConfig& config) {
  const uint64_t shared = keys.file().find_uint(keys.key("attention.shared_kv_layers")).value_or(0);
  if (shared >= config.layers.size()) {
    fail("\"{}\": {} is {} of {} layers", keys.file().path(), keys.key("attention.shared_kv_layers"), shared,
         config.layers.size());
  }
  const size_t own = config.layers.size() - static_cast<size_t>(shared);
  for (size_t i = own; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    for (size_t j = 0; j < own; ++j) {
      const bool same =
          (config.layers[j].window != 0) == (layer.window != 0) && config.layers[j].kv_heads == layer.kv_heads;
      if (same) layer.kv_source = static_cast<int32_t>(j);
    }
    if (layer.kv_source == kOwnCache) {
      fail("\"{}\": {} is {}, but no layer before these has the keys of layer {}", keys.file().path(),
           keys.key("attention.shared_kv_layers"), shared, i);
    }
    layer.v_is_k = false;
  }
}

int32_t read_layer_inputs(const ConfigKeys& keys, const ModelConfig& config) {
  const char* suffix = "embedding_length_per_layer_input";
  if (keys.file().find_uint(keys.key(suffix)).value_or(0) == 0) return 0;
  return keys.size(suffix, ConfigKeys::kMaxSize / config.layers.size());
}

void add_experts(const ConfigKeys& keys, ModelConfig& config) {
  if (keys.file().find_uint(keys.key("expert_count")).value_or(0) == 0) return;
  std::vector<int32_t> ffn;
  for (const LayerConfig& layer : config.layers) ffn.push_back(layer.ffn);
  set_experts(keys, config, 0,
              {.score = RouterScore::softmax,
               .normalize = true,
               .logit_scale = 1 / std::sqrt(static_cast<float>(config.width))});
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].experts.beside_mlp = true;
    config.layers[i].experts.shared_ffn = ffn[i];
    config.layers[i].experts.shared_gate = false;
  }
}

void configure(const ConfigKeys& keys, ModelConfig& config) {
  const LocalHeads local = read_local_heads(keys, config.layers[0]);
  config.ropes.push_back(read_local_rope(keys, local.head_dim));
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  if (keys.has("final_logit_softcapping")) config.logit_softcap = keys.positive_float("final_logit_softcapping");
  set_windows(keys, config, keys.size("attention.sliding_window"), kPeriod);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    const auto name = [&](const char* part) { return layer_tensor_name(static_cast<int32_t>(i), part); };
    if (layer.window != 0) {
      layer.rope = 1;
      layer.head_dim = local.head_dim;
      layer.v_head_dim = local.value_dim == local.head_dim ? 0 : local.value_dim;
    }
    layer.qk_norm = QkNorm::heads;
    layer.v_norm = true;
    layer.v_is_k = keys.file().find_tensor(name("attn_k.weight")) != nullptr &&
                   keys.file().find_tensor(name("attn_v.weight")) == nullptr;
    layer.attention_scale = 1;
    layer.post_norms = true;
    layer.activation = Activation::gelu_tanh;
    layer.output_scale = read_scale(keys.file(), name("layer_output_scale.weight"));
    if (layer.v_is_k && layer.v_head_dim != 0) {
      fail("\"{}\": layer {} has no {} and values unlike keys", keys.file().path(), i, name("attn_v.weight"));
    }
  }
  share_caches(keys, config);
  config.layer_inputs = read_layer_inputs(keys, config);
  add_experts(keys, config);
}

}  // namespace

const Architecture kGemma4 = {"gemma4", configure};

}  // namespace inferno
