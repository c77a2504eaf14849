// Products of up to 64 tokens (see tile_product.cuh).
#include "backend/cuda/kernels/tile_launch.cuh"

namespace inferno::cuda {

void launch_tiles_64(const LaunchContext& c, const TileProduct& p) {
  launch_tiles_for<64>(c, p);
}

}  // namespace inferno::cuda
