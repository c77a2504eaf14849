// Matrix–vector kernels of these formats (see vector_product.cuh).
#include "backend/cuda/kernels/vector_product.cuh"

namespace inferno::cuda {

void launch_vector_q4_k(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q4_k, DType::q4_k, DType::q4_k, DType::q6_k>(c, p);
}
void launch_vector_q6_k(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q6_k, DType::q6_k, DType::q4_k, DType::q6_k>(c, p);
}
void launch_vector_q4_k_q6_k(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q4_k, DType::q6_k>(c, p);
}
void launch_vector_q5_k_q6_k(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::q5_k, DType::q6_k>(c, p);
}

}  // namespace inferno::cuda
