// Matrix–vector kernels of these formats (see vector_product.cuh).
#include "backend/cuda/kernels/vector_product.cuh"

namespace inferno::cuda {

void launch_vector_q2_k(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q2_k>(c, p);
}
void launch_vector_q3_k(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q3_k>(c, p);
}

}  // namespace inferno::cuda
