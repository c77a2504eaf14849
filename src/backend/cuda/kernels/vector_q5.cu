// Matrix–vector kernels of these formats (see vector_product.cuh).
#include "backend/cuda/kernels/vector_product.cuh"

namespace inferno::cuda {

void launch_vector_q5_0(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q5_0>(c, p);
}
void launch_vector_q5_1(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q5_1>(c, p);
}
void launch_vector_q5_k(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q5_k>(c, p);
}

}  // namespace inferno::cuda
