// Products of these formats with one of several matrices (see pair_product.cuh).
#include "backend/cuda/kernels/pair_product.cuh"

namespace inferno::cuda {

void launch_pairs_iq4_nl(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::iq4_nl>(c, p);
}
void launch_pairs_mxfp4(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::mxfp4>(c, p);
}
void launch_pairs_iq4_xs(const LaunchContext& c, const PairProduct& p) {
  launch_pairs_for<DType::iq4_xs>(c, p);
}

}  // namespace inferno::cuda
