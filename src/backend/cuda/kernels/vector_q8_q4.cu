// Matrix–vector kernels of these formats (see vector_product.cuh).
#include "backend/cuda/kernels/vector_product.cuh"

namespace inferno::cuda {

void launch_vector_q8_0(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q8_0>(c, p);
}
void launch_vector_q4_0(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q4_0>(c, p);
}
void launch_vector_q4_1(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q4_1>(c, p);
}

}  // namespace inferno::cuda
