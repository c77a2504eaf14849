// Matrix–vector kernels of these formats (see vector_product.cuh).
#include "backend/cuda/kernels/vector_product.cuh"

namespace inferno::cuda {

void launch_vector_iq4_nl(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::iq4_nl>(c, p);
}
void launch_vector_mxfp4(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::mxfp4>(c, p);
}
void launch_vector_iq4_xs(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::iq4_xs>(c, p);
}

}  // namespace inferno::cuda
