// The two halves of a layer of one to four decoded tokens, each one kernel of clusters (layer_half.cuh).
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

// The only shape there are kernels for: clusters of 8 blocks share it evenly.
inline constexpr int kLayerWidth = 1024;
inline constexpr int kLayerHeads = 16;
inline constexpr int kLayerKvHeads = 8;
inline constexpr int kLayerHeadDim = 128;
inline constexpr int kLayerMiddle = 3072;  // of the MLP
inline constexpr int kMaxLayerClusters = 16;
inline constexpr int kMaxLayerTokens = 4;

// The tokens that the kernels for so many have.
[[nodiscard]] constexpr int layer_tokens(int tokens) {
  return tokens == 3 ? 4 : tokens;
}

// The residual stream between the halves: the sum of each token's row and of the parts that each cluster of the half
// before adds to it. A half stores the sum that it read, and its own parts.
struct LayerStream {
  const float* row = nullptr;    // [tokens][kLayerWidth]
  const float* parts = nullptr;  // [count][layer_tokens()][kLayerWidth]
  int count = 0;                 // at most kMaxLayerClusters
  int tokens = 1;
  float* row_out = nullptr;  // [layer_tokens()][kLayerWidth]
  float* parts_out = nullptr;
};

struct LayerWeight {
  Planes w;
  DType dtype = DType::bf16;
};

struct AttentionHalf {
  LayerStream stream;
  const float* norm = nullptr;  // [kLayerWidth]
  LayerWeight q, k, v, o;
  HeadNorms norms;              // of both kinds of heads; eps also that of `norm`
  const float* rope = nullptr;  // [context][kLayerHeadDim / 2] (cos, sin), halves of a head are rotated
  KvLayerView kv;
  StepBatch batch;
  float scale = 1;
};
struct MlpHalf {
  LayerStream stream;
  const float* norm = nullptr;
  float eps = 0;
  LayerWeight gate, up, down;
};

// Clusters of the kernels, and so parts: one per query head; of an MLP with gates of this type and so many tokens.
inline constexpr int kAttentionClusters = kLayerHeads;
[[nodiscard]] int mlp_clusters(DType gate, int tokens);
// Whether there are kernels for these types of weights: q, k and o, v; gate and up, down.
[[nodiscard]] bool layer_types_fit(DType most, DType other);
// Whether the driver can map weights, as these kernels need it.
[[nodiscard]] bool layer_halves_fit(const LaunchContext& c);
// Whether they can read this cache.
[[nodiscard]] bool layer_cache_fits(const KvLayerView& kv);
// False: the driver cannot map weights or cache.
[[nodiscard]] bool launch_attention_half(const LaunchContext& c, const AttentionHalf& task);
[[nodiscard]] bool launch_mlp_half(const LaunchContext& c, const MlpHalf& task);
// out [tokens][kLayerWidth]: the rows with all parts.
void launch_layer_sum(const LaunchContext& c, const LayerStream& stream, float* out);

}  // namespace inferno::cuda
