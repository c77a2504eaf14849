// The head's products of up to 64 tokens a block (see head_product.cuh).
#include "backend/cuda/kernels/head_product.cuh"

namespace inferno::cuda {

void launch_head_64(const LaunchContext& c, const TileProduct& p) {
  launch_head_for<64>(c, p);
}

}  // namespace inferno::cuda
