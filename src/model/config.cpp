#include "model/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "backend/kv_view.h"
#include "base/error.h"
#include "base/text.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

constexpr std::array kArchitectures = {
    &kQwen3,        &kQwen2,     &kLlama,   &kQwen3Moe,  &kGemma3,     &kGemma2,        &kGemma4,        &kMistral3,
    &kGranite,      &kSmolLm3,   &kOlmo2,   &kPhi3,      &kSeedOss,    &kGlm4Moe,       &kMiniMaxM2,     &kLaguna,
    &kGptOss,       &kLfm2,      &kLfm2Moe, &kQwen35,    &kQwen35Moe,  &kQwen3Next,     &kGraniteHybrid, &kNemotronH,
    &kNemotronHMoe, &kDeepSeek2, &kBert,    &kNomicBert, &kModernBert, &kGemmaEmbedding};

const Architecture& find_architecture(const ModelFile& file) {
  const std::string& name = file.get_string("general.architecture");
  std::string known;
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->name == name) return *architecture;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture->name);
  }
  fail("\"{}\" holds a model of architecture \"{}\", which inferno does not know (known: {})", file.path(),
       printable(name), known);
}

int32_t read_head_dim(const ConfigKeys& keys, int32_t width, int32_t q_heads) {
  const std::optional<int32_t> key_length = keys.find_size("attention.key_length");
  if (!key_length && width % q_heads != 0) {
    fail("\"{}\": width {} does not divide into {} heads", keys.file().path(), width, q_heads);
  }
  const int32_t head_dim = key_length.value_or(width / q_heads);
  return head_dim;
}

// Layers that predict several tokens ahead are at the end, and no part of the model itself.
int32_t without_nextn(const ConfigKeys& keys, int32_t count) {
  const uint64_t nextn = keys.file().find_uint(keys.key("nextn_predict_layers")).value_or(0);
  if (nextn >= static_cast<uint64_t>(count)) {
    fail("\"{}\": {} is {} of {} layers", keys.file().path(), keys.key("nextn_predict_layers"), nextn, count);
  }
  return count - static_cast<int32_t>(nextn);
}

// Files whose layers all have experts may say 0.
std::vector<int32_t> read_ffn(const ConfigKeys& keys, int32_t count) {
  const std::string key = keys.key("feed_forward_length");
  if (keys.has("expert_feed_forward_length") && !keys.file().is_array(key) &&
      keys.file().find_uint(key).value_or(0) == 0) {
    return std::vector<int32_t>(static_cast<size_t>(count), 0);
  }
  // 0: the layer has no MLP, which the architecture must know.
  if (std::optional<std::vector<int32_t>> sizes = keys.find_layer_sizes("feed_forward_length", count, 0)) return *sizes;
  return keys.layer_sizes("feed_forward_length", count);  // says what is missing
}

std::vector<LayerConfig> read_layers(const ConfigKeys& keys, int32_t width) {
  const ModelFile& file = keys.file();
  const int32_t count = keys.size("block_count", kMaxLayers);
  const std::vector<int32_t> ffn = read_ffn(keys, count);
  const std::vector<int32_t> q_heads = keys.layer_sizes("attention.head_count", count);
  // 0: the layer has no attention, which the architecture must know.
  const std::vector<int32_t> kv_heads = keys.find_layer_sizes("attention.head_count_kv", count, 0).value_or(q_heads);
  const int32_t head_dim = read_head_dim(keys, width, q_heads[0]);
  const int32_t value_dim = keys.find_size("attention.value_length").value_or(head_dim);
  std::vector<LayerConfig> layers;
  for (size_t i = 0; i < static_cast<size_t>(without_nextn(keys, count)); ++i) {
    if (kv_heads[i] > 0 && q_heads[i] % kv_heads[i] != 0) {
      fail("\"{}\": {} query heads cannot share {} key-value heads evenly", file.path(), q_heads[i], kv_heads[i]);
    }
    if (kv_heads[i] > 0 && q_heads[i] / kv_heads[i] > kMaxQueryGroup) {
      fail("\"{}\": {} query heads share {} key-value heads, more than {} each", file.path(), q_heads[i], kv_heads[i],
           kMaxQueryGroup);
    }
    // Sizes of the cache and of steps are products of these.
    if (int64_t{q_heads[i]} * std::max(head_dim, value_dim) > static_cast<int64_t>(ConfigKeys::kMaxSize)) {
      fail("\"{}\": {} heads of {} elements are more than the {} a layer may have", file.path(), q_heads[i],
           std::max(head_dim, value_dim), ConfigKeys::kMaxSize);
    }
    LayerConfig& layer = layers.emplace_back();
    layer.q_heads = q_heads[i];
    layer.kv_heads = kv_heads[i];
    layer.head_dim = head_dim;
    layer.v_head_dim = value_dim == head_dim ? 0 : value_dim;
    layer.ffn = ffn[i];
    // Any family's files may have biases.
    const auto has = [&](const char* part) {
      return file.find_tensor(layer_tensor_name(static_cast<int32_t>(i), part)) != nullptr;
    };
    layer.qkv_bias = has("attn_q.bias") || has("attn_qkv.bias");
    layer.output_bias = has("attn_output.bias");
    layer.ffn_bias = has("ffn_up.bias");
  }
  return layers;
}

int32_t read_vocabulary_size(const ModelFile& file) {
  const FileTensor& embedding = file.get_tensor(kEmbeddingTensor);
  if (embedding.shape.rank != 2 || std::cmp_greater(embedding.shape[0], ConfigKeys::kMaxSize)) {
    fail("\"{}\": {} has shape {}, must be [vocabulary, width]", file.path(), kEmbeddingTensor,
         to_string(embedding.shape));
  }
  return static_cast<int32_t>(embedding.shape[0]);
}

}  // namespace

int64_t ModelConfig::attention_width() const {
  int64_t widest = 0;
  for (const LayerConfig& layer : layers) widest = std::max({widest, layer.attention_width(), layer.output_width()});
  return widest;
}

int64_t ModelConfig::gate_width() const {
  int64_t widest = 0;
  for (const LayerConfig& layer : layers) widest = std::max(widest, layer.gate_width());
  return widest;
}

int32_t ModelConfig::ffn() const {
  int32_t widest = 0;
  for (const LayerConfig& layer : layers) widest = std::max(widest, layer.active_ffn());
  return widest;
}

int64_t ModelConfig::experts_used() const {
  int64_t most = 0;
  for (const LayerConfig& layer : layers) {
    if (layer.experts.count > 0) most = std::max<int64_t>(most, layer.experts.routing.used);
  }
  return most;
}

int64_t ModelConfig::mixer_width() const {
  int64_t widest = 0;
  for (const LayerConfig& layer : layers) {
    const LatentConfig& l = layer.latent;
    if (layer.mixer == Mixer::latent_attention) {
      const int64_t heads = int64_t{layer.q_heads} * (l.kept + l.rotated + l.value_dim);
      widest = std::max(widest, width + l.query_rank + l.rank + l.rotated + heads);
    }
    const RecurrentConfig& r = layer.recurrent;
    const int64_t conv = layer.mixer == Mixer::short_conv ? 3 * int64_t{r.conv_channels} : r.conv_channels;
    if (layer.is_recurrent()) widest = std::max(widest, width + conv + 2 * r.value_width() + 2 * int64_t{r.v_heads});
  }
  return widest;
}

const LayerConfig& ModelConfig::attention_layer() const {
  return *std::find_if(layers.begin(), layers.end(), [](const LayerConfig& l) { return l.attends(); });
}

bool ModelConfig::shared_experts() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& l) { return l.experts.shared_ffn > 0; });
}

void set_windows(const ConfigKeys& keys, ModelConfig& config, int32_t window, int32_t period) {
  const std::string_view pattern = "attention.sliding_window_pattern";
  std::optional<std::vector<bool>> flags;
  if (keys.file().is_array(keys.key(pattern))) {
    flags = keys.file().find_bools(keys.key(pattern));
    if (flags->size() < config.layers.size()) {
      fail("\"{}\": {} has {} entries for {} layers", keys.file().path(), keys.key(pattern), flags->size(),
           config.layers.size());
    }
  } else {
    period = keys.find_size(pattern).value_or(period);
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool windowed = flags ? (*flags)[i] : period == 0 || (i + 1) % static_cast<size_t>(period) != 0;
    config.layers[i].window = windowed ? window : 0;
  }
}

void set_recurrent(LayerConfig& layer, Mixer mixer, const RecurrentConfig& recurrent) {
  layer.mixer = mixer;
  layer.recurrent = recurrent;
  layer.q_heads = layer.kv_heads = 0;
}

namespace {

void check_layers(const ConfigKeys& keys, const ModelConfig& config) {
  bool attends = false;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (layer.mlp && layer.experts.count == 0 && layer.ffn == 0) {
      fail("\"{}\": {} is 0 and a layer has no experts", keys.file().path(), keys.key("feed_forward_length"));
    }
    if (!layer.attends()) continue;
    attends = true;
    if (layer.kv_heads == 0) {
      fail("\"{}\": {}[{}] is 0, must be 1 to {}", keys.file().path(), keys.key("attention.head_count_kv"), i,
           ConfigKeys::kMaxSize);
    }
  }
  if (!attends) fail("\"{}\" has no layer with attention, which inferno needs", keys.file().path());
}

}  // namespace

ModelConfig read_config(const ModelFile& file) {
  const Architecture& architecture = find_architecture(file);
  const ConfigKeys keys(file, architecture.name);
  ModelConfig config;
  config.architecture = architecture.name;
  const std::string* name = file.find_string("general.name");
  config.name = name != nullptr ? *name : "";
  config.width = keys.size("embedding_length");
  config.context = keys.size("context_length");
  config.norm_eps = keys.positive_float(architecture.eps_key);
  config.layers = read_layers(keys, config.width);
  config.ropes = {read_rope(keys, config.layers[0].head_dim)};
  config.vocabulary = read_vocabulary_size(file);
  architecture.configure(keys, config);
  read_pooling(keys, config);
  for (const RopeConfig& rope : config.ropes) check_rope(keys, rope);
  check_layers(keys, config);
  return config;
}

}  // namespace inferno
