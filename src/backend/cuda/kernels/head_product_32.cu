// The head's products of up to 32 tokens (see head_product.cuh).
#include "backend/cuda/kernels/head_product.cuh"

namespace inferno::cuda {

void launch_head_32(const LaunchContext& c, const TileProduct& p) {
  launch_head_for<32>(c, p);
}

}  // namespace inferno::cuda
