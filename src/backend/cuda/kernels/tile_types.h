// The types of weights that tile_product_kernel multiplies.
#pragma once

#include "backend/cuda/kernels/tile_task.h"
#include "backend/cuda/weight_layout.h"

namespace inferno::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kTileRows = 128;
inline constexpr int kGroupRows = 64;  // of a warpgroup
inline constexpr int kMaxSplits = 8;   // blocks of a cluster
[[nodiscard]] INFERNO_HOST_DEVICE constexpr bool is_plain(DType dtype) {
  return dtype == DType::bf16;
}
// Values of k in a unit, and units in shared memory at a time.
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int tile_unit(DType dtype) {
  return is_plain(dtype) ? 128 : 256;
}
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int tile_stages(DType dtype) {
  return is_plain(dtype) ? 3 : 2;
}

// Calls visit.template operator()<F, F2>() with the types of the product's weights; false: there is no kernel for them.
// Models mix some types in one product: one kernel has both.
template <typename Visit>
[[nodiscard]] bool with_tile_types(const TileProduct& p, Visit&& visit) {
  const auto with = [&]<DType F, DType F2>() {
    for (int i = 0; i < p.segments; ++i) {
      if (p.segment[i].dtype != F && p.segment[i].dtype != F2) return false;
    }
    visit.template operator()<F, F2>();
    return true;
  };
  return with.template operator()<DType::bf16, DType::bf16>() || with.template operator()<DType::q8_0, DType::q8_0>() ||
         with.template operator()<DType::q4_0, DType::q4_0>() || with.template operator()<DType::q4_k, DType::q6_k>() ||
         with.template operator()<DType::q5_k, DType::q6_k>();
}

// How a product is cut into blocks.
struct TileShares {
  int units = 0;                          // of a row
  int splits = 1;                         // blocks that share a tile
  int first_tile[kMaxSegments + 1] = {};  // of each segment
};
[[nodiscard]] TileShares tile_shares(const LaunchContext& c, const TileProduct& p);

}  // namespace inferno::cuda
