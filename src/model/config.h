// A model's hyper-parameters, read from a file's metadata and checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "file/model_file.h"
#include "model/config_keys.h"
#include "model/rope.h"

namespace inferno {

inline constexpr int32_t kNoRope = -1;

struct LayerConfig {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;  // the same in every layer, as head_dim: the cache has one shape of page
  int32_t head_dim = 0;
  int32_t ffn = 0;   // rows of gate and up
  int32_t rope = 0;  // in ModelConfig::ropes; kNoRope: q and k are not rotated
  bool qkv_bias = false;
  bool qk_norm = false;  // RMS norms of the heads of q and k

  [[nodiscard]] int64_t attention_width() const { return int64_t{q_heads} * head_dim; }
  [[nodiscard]] int64_t kv_width() const { return int64_t{kv_heads} * head_dim; }
};

struct ModelConfig {
  std::string architecture;
  std::string name;
  int32_t width = 0;  // d: elements of the residual stream
  int32_t vocabulary = 0;
  int32_t context = 0;  // positions the model was trained for
  float norm_eps = 0;
  std::vector<RopeConfig> ropes;    // the different rotations of the layers
  std::vector<LayerConfig> layers;  // at least one

  [[nodiscard]] int32_t layer_count() const { return static_cast<int32_t>(layers.size()); }
  // Of the widest layer.
  [[nodiscard]] int64_t attention_width() const;
  [[nodiscard]] int32_t ffn() const;
};

// What one architecture adds to the common metadata; one small file each.
struct Architecture {
  std::string_view name;  // general.architecture
  // Completes the config, for which the common keys have been read: one rotation, equal layers where keys say no more.
  void (*configure)(const ConfigKeys& keys, ModelConfig& config);
};
extern const Architecture kQwen3;
extern const Architecture kQwen2;
extern const Architecture kLlama;

// An unknown architecture, a missing key or a value that makes no sense is an Error that names it.
[[nodiscard]] ModelConfig read_config(const ModelFile& file);

}  // namespace inferno
