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
  // The context the model was trained for before it was stretched; 0: not stretched, or not said.
  int32_t original_context = 0;
  std::vector<float> long_factors;  // in place of `factors` in a context beyond the original ("longrope"); or empty
  // "yarn": low frequencies are divided by the factor, high ones kept; between them, from beta_fast to beta_slow
  // rotations in the original context, a ramp. 0: none.
  double yarn_factor = 0;
  double yarn_beta_fast = 32;
  double yarn_beta_slow = 1;
  bool yarn_truncates = true;  // the ramp begins and ends at whole dimensions
  double magnitude = 1;        // of rotated elements
  // Mistral's: queries at position p are multiplied by 1 + temperature * ln(floor(p / original_context) + 1).
  double temperature = 0;
};

// The rope.* keys and the tensor of factors; the pairing is the architecture's business.
[[nodiscard]] RopeConfig read_rope(const ConfigKeys& keys, int32_t head_dim);

// Settings whose table would hold anything but numbers are an Error.
void check_rope(const ConfigKeys& keys, const RopeConfig& rope);

// [context, rotated_dims / 2, 2] of (cos, sin).
[[nodiscard]] std::vector<float> rope_table(const RopeConfig& rope, int32_t context);
// The same for queries, whose temperature it includes.
[[nodiscard]] std::vector<float> query_rope_table(const RopeConfig& rope, int32_t context);

}  // namespace inferno
