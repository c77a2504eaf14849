// Products of up to 16 tokens (see tile_product.cuh).
#include "backend/cuda/kernels/tile_launch.cuh"

namespace inferno::cuda {

void launch_tiles_16(const LaunchContext& c, const TileProduct& p) {
  launch_tiles_for<16>(c, p);
}

}  // namespace inferno::cuda
