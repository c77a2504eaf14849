// The head's products of up to 16 tokens (see head_product.cuh).
#include "backend/cuda/kernels/head_product.cuh"

namespace inferno::cuda {

void launch_head_16(const LaunchContext& c, const TileProduct& p) {
  launch_head_for<16>(c, p);
}

}  // namespace inferno::cuda
