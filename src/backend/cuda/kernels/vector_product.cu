// Dispatch of a matrix–vector product by its types; mixed types without a kernel of their own are split.
#include "backend/cuda/kernels/vector_product.cuh"

namespace inferno::cuda {
namespace {

using Launcher = void (*)(const LaunchContext&, const VectorProduct&);

Launcher launcher_of(DType dtype) {
  switch (dtype) {
#define FORMAT(name, Name, ...)                                          \
  case DType::name:                                                      \
    if constexpr (has_kernels(DType::name)) return launch_vector_##name; \
    return nullptr;
#include "tensor/weight_formats.inc"
    default:
      return nullptr;
  }
}

Activation activation_kind(DType dtype) {
  if (dtype == DType::f32) return Activation::f32;
  if (dtype == DType::f16 || dtype == DType::bf16) return Activation::split8;
  return format_of(dtype).block == 32 ? Activation::quant32 : Activation::quant256;
}

// Whether stream_columns_kernel multiplies this many tokens: their activations leave room for two rows of weights.
bool columns_fit(DType dtype, int tokens, int64_t k) {
  constexpr int64_t kColumnBytes = 88 * 1024;
  constexpr int64_t kRowBytes = 40 * 1024;
  if (!has_columns(dtype) || tokens > kMaxVectorTokens || (dtype == DType::bf16 && k % 64 != 0)) return false;
  const int64_t row_bytes = dtype == DType::bf16 ? 2 * k : k + k / 8;
  if (row_bytes > kRowBytes) return false;
  const Activation kind = dtype == DType::bf16 ? Activation::halves : activation_kind(dtype);
  return int64_t{tokens} * column_bytes(kind, static_cast<int>(divide_up<int64_t>(k, kUnit))) <= kColumnBytes;
}

bool same_type(const VectorProduct& p, int from, int to) {
  for (int i = from + 1; i < to; ++i) {
    if (p.segment[i].dtype != p.segment[from].dtype) return false;
  }
  return true;
}

}  // namespace

bool vector_product_fits(const LaunchContext& c, DType dtype, int tokens, int64_t k) {
  constexpr int64_t kSharedBytes = 160 * 1024;
  if (c.hopper && tokens > 1 && columns_fit(dtype, tokens, k)) return true;
  if (tokens > max_vector_tokens(dtype)) return false;
  const int64_t units = divide_up<int64_t>(k, kUnit);
  return units * vector_columns(tokens) * activation_bytes(activation_kind(dtype), 1) <= kSharedBytes;
}

bool few_rows_fit(const LaunchContext& c, const VectorProduct& p) {
  return c.hopper && p.tokens == kFewTokens && p.segments == 1 && !p.swiglu && p.residual == nullptr &&
         p.segment[0].bias == nullptr && has_few_rows(p.segment[0].dtype) && p.k % kGroup == 0 &&
         p.k < kLongUnits * kUnit && p.segment[0].rows >= int64_t{kManyRows} * c.sm_count;
}

void launch_vector_product(const LaunchContext& c, const VectorProduct& p) {
  if (p.swiglu || same_type(p, 0, p.segments)) {
    launcher_of(p.segment[0].dtype)(c, p);
    return;
  }
  const DType last = p.segment[p.segments - 1].dtype;
  if (same_type(p, 0, p.segments - 1) && last == DType::q6_k) {
    if (p.segment[0].dtype == DType::q4_k) return launch_vector_q4_k_q6_k(c, p);
    if (p.segment[0].dtype == DType::q5_k) return launch_vector_q5_k_q6_k(c, p);
  }
  for (int i = 0; i < p.segments; ++i) {
    VectorProduct one = p;
    one.segments = 1;
    one.segment[0] = p.segment[i];
    launcher_of(one.segment[0].dtype)(c, one);
  }
}

}  // namespace inferno::cuda
