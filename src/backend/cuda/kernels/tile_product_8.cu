// Products of up to 8 tokens (see tile_product.cuh).
#include "backend/cuda/kernels/tile_launch.cuh"

namespace inferno::cuda {

void launch_tiles_8(const LaunchContext& c, const TileProduct& p) {
  launch_tiles_for<8>(c, p);
}

}  // namespace inferno::cuda
