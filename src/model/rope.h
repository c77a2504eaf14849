// Rotary position embedding: what a file says about it, and the table it becomes.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/op_args.h"
#include "model/config_keys.h"

namespace inferno {

// All that a table of angles is made of.
struct RopeConfig {
  RopePairing pairing = RopePairing::half_split;
  int32_t rotated_dims = 0;  // leading elements of a head that rotate; the rest pass through
  double base = 10000;
  double position_scale = 1;   // positions are multiplied by this ("linear" scaling)
  std::vector<float> factors;  // [rotated_dims / 2], divide the frequencies (Llama 3's scaling); empty: all 1
};

// The rope.* keys and the tensor of factors; the pairing is the architecture's business.
[[nodiscard]] RopeConfig read_rope(const ConfigKeys& keys, int32_t head_dim);

// [context, rotated_dims / 2, 2] of (cos, sin).
[[nodiscard]] std::vector<float> rope_table(const RopeConfig& rope, int32_t context);

}  // namespace inferno
