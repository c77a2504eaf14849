// The types of weights that tile_product_kernel multiplies.
#pragma once

#include "backend/cuda/kernels/tile_task.h"
#include "backend/cuda/weight_layout.h"

namespace inferno::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kTileRows = 128;
inline constexpr int kGroupRows = 64;  // of a warpgroup
// Tokens of a tile up to which two blocks of two stages share a multiprocessor.
inline constexpr int kPairColumns = 64;
inline constexpr int kMaxSplits = 8;  // blocks of a cluster
// The same of blocks that have a multiprocessor each: larger clusters do not fill all of them at a time.
inline constexpr int kMaxLoneSplits = 2;
[[nodiscard]] INFERNO_HOST_DEVICE constexpr bool is_plain(DType dtype) {
  return dtype == DType::bf16;
}
// Values of k in a unit, and units in shared memory at a time.
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int tile_unit(DType dtype) {
  return is_plain(dtype) ? 128 : 256;
}
// The most tokens of a tile. With more, weights are read once per tile of them; those that take long to unpack are not.
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int most_columns(DType dtype) {
  return dtype == DType::q4_k || dtype == DType::q5_k || dtype == DType::q6_k ? kMaxTileTokens : kPairColumns;
}
// Blocks of many columns that have more than two units have a multiprocessor to themselves.
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int tile_stages(DType dtype, int columns, int units) {
  if (columns > kFewTileTokens) return units <= 2 || columns > kPairColumns ? 2 : is_plain(dtype) ? 4 : 3;
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
  int columns = 8;                        // tokens of a tile, padded
  int token_tiles = 1;                    // of so many tokens
  int units = 0;                          // of a row
  int splits = 1;                         // blocks that share a tile
  int first_tile[kMaxSegments + 1] = {};  // of each segment
};
[[nodiscard]] TileShares tile_shares(const LaunchContext& c, const TileProduct& p);

}  // namespace inferno::cuda
