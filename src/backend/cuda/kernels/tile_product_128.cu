// Products of up to 128 tokens (see tile_product.cuh).
#include "backend/cuda/kernels/tile_launch.cuh"

namespace inferno::cuda {

void launch_tiles_128(const LaunchContext& c, const TileProduct& p) {
  launch_tiles_for<128>(c, p);
}

}  // namespace inferno::cuda
