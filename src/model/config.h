// A model's hyper-parameters, read from a file's metadata and checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/op_args.h"
#include "file/model_file.h"

namespace inferno {

struct ModelConfig {
  std::string architecture;
  std::string name;
  int32_t layers = 0;
  int32_t width = 0;  // d: elements of the residual stream
  int32_t ffn = 0;    // rows of gate and up
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t vocabulary = 0;
  int32_t context = 0;  // positions the model was trained for
  float norm_eps = 0;

  RopePairing pairing = RopePairing::half_split;
  int32_t rotated_dims = 0;
  double rope_base = 10000;
  double rope_position_scale = 1;  // positions are multiplied by this ("linear" scaling)

  bool qkv_bias = false;
  bool qk_norm = false;
};

// What one architecture adds to the common metadata; one small file each.
struct Architecture {
  std::string_view name;  // general.architecture
  void (*configure)(ModelConfig& config);
};
extern const Architecture kQwen3;
extern const Architecture kQwen2;
extern const Architecture kLlama;

// An unknown architecture, a missing key or a value that makes no sense is an Error that names it.
[[nodiscard]] ModelConfig read_config(const ModelFile& file);

}  // namespace inferno
