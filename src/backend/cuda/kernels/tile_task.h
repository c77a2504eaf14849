// A product of some tens of tokens, and its kernel (tile_product.cuh).
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

// With fewer tokens the matrix-vector kernels are faster.
inline constexpr int kLeastTileTokens = 6;
// 16-bit weights need not be unpacked: cuBLAS is faster with more than kMaxPlainTileTokens.
inline constexpr int kMaxTileTokens = 128;
inline constexpr int kMaxPlainTileTokens = 64;
// Blocks normalize their input themselves.
inline constexpr int kFewTileTokens = 32;
// Blocks have few rows, of many values each (narrow_product.cuh).
inline constexpr int kNarrowTokens = 16;
// Results of which a product gives each token's sum of squares to the next one; `columns`: tokens of a tile.
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int squares_rows(int columns) {
  return columns <= kFewTileTokens ? 32 : 64;
}
// out_i = x * w_i^T + bias_i (+ residual); SwiGLU: out_0 = silu(x w_0^T) * (x w_1^T). With `norm`, x is normalized
// before. A norm between two products can also be shared by them: the first also stores its results as the second reads
// them, multiplied with the norm's weights, and their squares, from which the second has the factor of each token.
struct TileProduct {
  struct Segment {
    Planes w;
    DType dtype = DType::bf16;
    int rows = 0;
    const float* bias = nullptr;  // [rows] or null
    void* out = nullptr;          // rows of a token, tokens out_stride elements apart
    int64_t out_stride = 0;
  };
  const void* x = nullptr;      // [tokens, k], bf16 or, with `norm`, f32
  const float* norm = nullptr;  // [k] or null
  // x was stored by the product before: [tokens, k / squares_rows()] or null.
  const float* squares = nullptr;
  float eps = 0;
  int tokens = 0;
  int k = 0;
  int segments = 0;
  Segment segment[kMaxSegments];
  DType out_type = DType::f32;      // or bf16
  const float* residual = nullptr;  // laid out like the output, or null; one segment
  bool swiglu = false;              // two segments of one type and one number of rows
  // For the next product, or null; one segment, f32.
  const float* next_norm = nullptr;  // [rows]
  void* next_x = nullptr;            // bf16 [tokens, rows]
  float* next_squares = nullptr;     // [tokens, rows / squares_rows()]
};
// Whether there is a kernel for the product; x and the outputs do not matter.
[[nodiscard]] bool tile_product_fits(const LaunchContext& c, const TileProduct& p);
// Whether it also normalizes: blocks that multiply long rows piece by piece do not.
[[nodiscard]] bool tile_product_normalizes(const LaunchContext& c, const TileProduct& p);
void launch_tile_product(const LaunchContext& c, const TileProduct& p);

// Whether it is one of very many rows, like the head: then launch_tile_product() uses a kernel of its own
// (head_product.cuh), which is faster from the second token on; two of quantized weights have another (few_rows.h).
inline constexpr int kLeastHeadTokens = 2;
[[nodiscard]] bool is_head_product(const LaunchContext& c, const TileProduct& p);

}  // namespace inferno::cuda
