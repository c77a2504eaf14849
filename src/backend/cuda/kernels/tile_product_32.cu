// Products of up to 32 tokens (see tile_product.cuh).
#include "backend/cuda/kernels/tile_launch.cuh"

namespace inferno::cuda {

void launch_tiles_32(const LaunchContext& c, const TileProduct& p) {
  launch_tiles_for<32>(c, p);
}

}  // namespace inferno::cuda
