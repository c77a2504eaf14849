// How head_product_kernel (head_product.cuh) is launched.
#pragma once

#include "backend/cuda/kernels/tile_types.h"

namespace inferno::cuda {

inline constexpr int kMaxHeadTokens = 64;  // of a block
// Pieces of 64 rows per multiprocessor from which on a product is one of very many rows.
inline constexpr int kHeadPieces = 2;
inline constexpr int kMaxHeadShared = 226 * 1024;
// Shared memory of a block for this product.
[[nodiscard]] int head_shared_bytes(const TileProduct& p);
void launch_head_product(const LaunchContext& c, const TileProduct& p);

// Each in the file that instantiates it.
void launch_head_8(const LaunchContext& c, const TileProduct& p);
void launch_head_16(const LaunchContext& c, const TileProduct& p);
void launch_head_32(const LaunchContext& c, const TileProduct& p);
void launch_head_64(const LaunchContext& c, const TileProduct& p);

}  // namespace inferno::cuda
