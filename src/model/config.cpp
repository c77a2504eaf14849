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

constexpr std::array kArchitectures = {&kQwen3, &kQwen2, &kLlama};

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
  if (keys.find_size("attention.value_length").value_or(head_dim) != head_dim) {
    fail("\"{}\": keys and values of different lengths are not supported", keys.file().path());
  }
  return head_dim;
}

std::vector<LayerConfig> read_layers(const ConfigKeys& keys, int32_t width) {
  const ModelFile& file = keys.file();
  const int32_t count = keys.size("block_count", kMaxLayers);
  const std::vector<int32_t> ffn = keys.layer_sizes("feed_forward_length", count);
  const std::vector<int32_t> q_heads = keys.layer_sizes("attention.head_count", count);
  const std::vector<int32_t> kv_heads = keys.find_layer_sizes("attention.head_count_kv", count).value_or(q_heads);
  if (std::ranges::any_of(kv_heads, [&](int32_t heads) { return heads != kv_heads[0]; })) {
    fail("\"{}\": layers with different numbers of key-value heads are not supported", file.path());
  }
  const int32_t head_dim = read_head_dim(keys, width, q_heads[0]);
  std::vector<LayerConfig> layers;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    if (q_heads[i] % kv_heads[i] != 0) {
      fail("\"{}\": {} query heads cannot share {} key-value heads evenly", file.path(), q_heads[i], kv_heads[i]);
    }
    if (q_heads[i] / kv_heads[i] > kMaxQueryGroup) {
      fail("\"{}\": {} query heads share {} key-value heads, more than {} each", file.path(), q_heads[i], kv_heads[i],
           kMaxQueryGroup);
    }
    // Sizes of the cache and of steps are products of these.
    if (int64_t{q_heads[i]} * head_dim > static_cast<int64_t>(ConfigKeys::kMaxSize)) {
      fail("\"{}\": {} heads of {} elements are more than the {} a layer may have", file.path(), q_heads[i], head_dim,
           ConfigKeys::kMaxSize);
    }
    layers.push_back({.q_heads = q_heads[i], .kv_heads = kv_heads[i], .head_dim = head_dim, .ffn = ffn[i]});
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
  for (const LayerConfig& layer : layers) widest = std::max(widest, layer.attention_width());
  return widest;
}

int32_t ModelConfig::ffn() const {
  int32_t widest = 0;
  for (const LayerConfig& layer : layers) widest = std::max(widest, layer.ffn);
  return widest;
}

ModelConfig read_config(const ModelFile& file) {
  const Architecture& architecture = find_architecture(file);
  const ConfigKeys keys(file, architecture.name);
  ModelConfig config;
  config.architecture = architecture.name;
  const std::string* name = file.find_string("general.name");
  config.name = name != nullptr ? *name : "";
  config.width = keys.size("embedding_length");
  config.context = keys.size("context_length");
  config.norm_eps = keys.positive_float("attention.layer_norm_rms_epsilon");
  config.layers = read_layers(keys, config.width);
  config.ropes = {read_rope(keys, config.layers[0].head_dim)};
  config.vocabulary = read_vocabulary_size(file);
  architecture.configure(keys, config);
  return config;
}

}  // namespace inferno
