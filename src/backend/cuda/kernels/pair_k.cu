// Products of these formats with one of several matrices (see pair_product.cuh).
#include "backend/cuda/kernels/pair_product.cuh"

namespace inferno::cuda {

void launch_pairs_q2_k(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q2_k>(c, p);
}
void launch_pairs_q3_k(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q3_k>(c, p);
}
void launch_pairs_q4_k(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q4_k>(c, p);
}
void launch_pairs_q5_k(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q5_k>(c, p);
}
void launch_pairs_q6_k(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::q6_k>(c, p);
}

}  // namespace inferno::cuda
