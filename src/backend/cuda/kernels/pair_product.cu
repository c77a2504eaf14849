// Dispatch of products with one of several matrices by their type.
#include "backend/cuda/kernels/pair_product.cuh"

namespace inferno::cuda {

bool pair_product_fits(DType dtype, int64_t k, int columns) {
  constexpr int64_t kSharedBytes = 160 * 1024;
  const int64_t units = divide_up<int64_t>(k, kUnit);
  const bool plain = group_bytes(dtype).s == 0;
  return columns * units * activation_bytes(plain ? Activation::f32 : Activation::quant32, 1) <= kSharedBytes;
}

void launch_pair_product(const LaunchContext& c, const PairProduct& p) {
  switch (p.dtype) {
#define FORMAT(name, Name, ...) \
  case DType::name:             \
    return launch_pairs_##name(c, p);
#include "tensor/weight_formats.inc"
    default:
      return;
  }
}

}  // namespace inferno::cuda
