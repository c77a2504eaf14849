// Products of these formats with one of several matrices (see pair_product.cuh).
#include "backend/cuda/kernels/pair_product.cuh"

namespace inferno::cuda {

void launch_pairs_f32(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::f32>(c, p);
}
void launch_pairs_f16(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::f16>(c, p);
}
void launch_pairs_bf16(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::bf16>(c, p);
}

}  // namespace inferno::cuda
