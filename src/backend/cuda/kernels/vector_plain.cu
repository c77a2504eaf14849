// Matrix–vector kernels of these formats (see vector_product.cuh).
#include "backend/cuda/kernels/vector_product.cuh"

namespace inferno::cuda {

void launch_vector_f32(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::f32>(c, p);
}
void launch_vector_f16(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::f16>(c, p);
}
void launch_vector_bf16(const LaunchContext& c, const VectorProduct& p) {
  launch_vector_for<DType::bf16>(c, p);
}

}  // namespace inferno::cuda
