// Products of these formats with one of several matrices (see pair_product.cuh).
#include "backend/cuda/kernels/pair_product.cuh"

namespace inferno::cuda {

void launch_pairs_q8_0(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q8_0>(c, p);
}
void launch_pairs_q4_0(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q4_0>(c, p);
}
void launch_pairs_q4_1(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q4_1>(c, p);
}
void launch_pairs_q5_0(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q5_0>(c, p);
}
void launch_pairs_q5_1(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q5_1>(c, p);
}

}  // namespace inferno::cuda
