// A product of a prompt's step, some hundreds of tokens, with what follows it in a layer, and its kernel
// (prompt_product.cuh).
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

// Fewer are tiles (tile_task.h); with more, a product has more blocks than there are multiprocessors.
inline constexpr int kLeastPromptTokens = 129;
inline constexpr int kMaxPromptTokens = 1024;
// Rows of results of which a product gives each token's sum of squares to the next one.
inline constexpr int kPromptSquaresRows = 32;

// x * w_i^T, and then one of
//   heads: q, k and v become queries and rows of the cache (QK-norm, rotation);
//   swiglu: out = silu(x w_0^T) * (x w_1^T), bf16;
//   residual: out = x * w_0^T + residual, f32.
// A norm before the product is shared with the product before that: that one also stores its results as this one reads
// them, multiplied with the norm's weights, and their squares, from which this one has the factor of each token.
struct PromptProduct {
  enum class Result : uint8_t { heads, swiglu, residual };
  struct Segment {
    const void* w = nullptr;  // bf16 [rows, k]
    int rows = 0;
  };
  Result result = Result::residual;
  int tokens = 0;
  int k = 0;
  int segments = 1;
  Segment segment[kMaxSegments];
  bool fresh_weights = false;      // weights are not read before the wait for the previous kernel, which unpacks them
  const void* x = nullptr;         // bf16 [tokens, k]
  const float* squares = nullptr;  // [k / kPromptSquaresRows, tokens] if the norm's factor is still to be multiplied
  float eps = 0;
  RopeStore heads;                   // of `heads`; raw is not used, q_out is of the cache's type
  void* out = nullptr;               // [tokens, rows of a segment]
  const float* residual = nullptr;   // of `residual`: as out
  const float* next_norm = nullptr;  // [rows] or null: what the next product reads is not stored
  void* next_x = nullptr;            // bf16 [tokens, rows]
  float* next_squares = nullptr;     // [rows / kPromptSquaresRows, tokens]
};
// Whether there is a kernel for such a product; addresses do not matter.
[[nodiscard]] bool prompt_product_fits(const LaunchContext& c, const PromptProduct& p);
// False: the driver cannot make a tensor map.
[[nodiscard]] bool launch_prompt_product(const LaunchContext& c, const PromptProduct& p);

}  // namespace inferno::cuda
