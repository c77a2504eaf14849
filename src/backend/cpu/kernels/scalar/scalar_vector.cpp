// Vector ops as plain loops: the reference every faster table is held to.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels/scalar/scalar.h"
#include "quant/quant.h"
#include "tensor/dtype.h"

namespace inferno {
namespace {

void add(const float* a, const float* b, float* out, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void hadamard(const float* a, const float* b, float* out, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

void silu(const float* x, float* out, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] / (1.0F + std::exp(-x[i]));
}

void swiglu(const float* gate, const float* up, float* out, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
}

float sigmoid(float x) noexcept {
  return 1.0F / (1.0F + std::exp(-x));
}

constexpr float kClamp = 7;  // of clamped_silu

template <KernelActivation kActivation>
float activation(float x) noexcept {
  using A = KernelActivation;
  if constexpr (kActivation == A::silu) return x / (1.0F + std::exp(-x));
  // (1 + tanh(u)) / 2 is sigmoid(2 u), without the cancellation for large negative u.
  if constexpr (kActivation == A::gelu_tanh) return x * sigmoid(1.5957691216F * (x + 0.044715F * x * x * x));
  if constexpr (kActivation == A::gelu_erf) return 0.5F * x * std::erfc(-x * 0.70710678119F);
  if constexpr (kActivation == A::relu_squared) return x > 0 ? x * x : 0;
  if constexpr (kActivation == A::clamped_silu) return std::min(x, kClamp) * sigmoid(1.702F * std::min(x, kClamp));
  if constexpr (kActivation == A::sigmoid) return sigmoid(x);
  if constexpr (kActivation == A::softplus) return std::max(x, 0.0F) + std::log1p(std::exp(-std::fabs(x)));
}

template <KernelActivation kActivation>
void activate(const float* x, float* out, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = activation<kActivation>(x[i]);
}
template <KernelActivation kActivation>
void gated(const float* x, const float* factor, float* out, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    float f = factor[i];
    if constexpr (kActivation == KernelActivation::clamped_silu) f = std::clamp(f, -kClamp, kClamp) + 1;
    out[i] = activation<kActivation>(x[i]) * f;
  }
}

template <KernelActivation kActivation>
void set_activation(KernelTable& table) {
  table.activate[static_cast<int>(kActivation)] = activate<kActivation>;
  table.gated[static_cast<int>(kActivation)] = gated<kActivation>;
}

void soft_cap(const float* x, float cap, float* out, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = cap * std::tanh(x[i] / cap);
}

void scale(const float* x, float s, float* out, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * s;
}

void saxpy(float s, const float* x, float* y, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = std::fma(s, x[i], y[i]);
}

float dot(const float* a, const float* b, int64_t n) noexcept {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum = std::fma(a[i], b[i], sum);
  return sum;
}

// In double: the norms of every layer depend on this sum.
float sum_squares(const float* x, int64_t n) noexcept {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return static_cast<float>(sum);
}

void rms_norm(const float* x, const float* weight, float eps, float* out, int64_t n) noexcept {
  const float factor = 1.0F / std::sqrt(sum_squares(x, n) / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void softmax(const float* x, float* out, int64_t n) noexcept {
  const float largest = *std::max_element(x, x + n);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    out[i] = std::exp(x[i] - largest);
    sum += out[i];
  }
  for (int64_t i = 0; i < n; ++i) out[i] /= sum;
}

void rotate(float& a, float& b, const float* cos_sin) noexcept {
  const float x = a;
  const float y = b;
  a = x * cos_sin[0] - y * cos_sin[1];
  b = x * cos_sin[1] + y * cos_sin[0];
}

void rope_half_split(float* head, const float* cos_sin, int64_t pairs) noexcept {
  for (int64_t i = 0; i < pairs; ++i) rotate(head[i], head[i + pairs], cos_sin + 2 * i);
}

void rope_interleaved(float* head, const float* cos_sin, int64_t pairs) noexcept {
  for (int64_t i = 0; i < pairs; ++i) rotate(head[2 * i], head[2 * i + 1], cos_sin + 2 * i);
}

// Columns in blocks that stay in the L1 cache while the rows of b are streamed.
void matmul(const float* a, const float* b, float* out, int64_t n, int64_t p, int64_t row_begin,
            int64_t row_end) noexcept {
  constexpr int64_t kColumnBlock = 256;
  for (int64_t row = row_begin; row < row_end; ++row) {
    for (int64_t first = 0; first < p; first += kColumnBlock) {
      const int64_t count = std::min(kColumnBlock, p - first);
      float* o = out + row * p + first;
      std::fill_n(o, count, 0.0F);
      for (int64_t i = 0; i < n; ++i) saxpy(a[row * n + i], b + i * p + first, o, count);
    }
  }
}

template <DType kType>
void store_row(const float* x, void* row, int64_t n) noexcept {
  quantize_row(kType, x, row, n);
}
template <DType kType>
void load_row(const void* row, float* x, int64_t n) noexcept {
  dequantize_row(kType, row, x, n);
}

template <DType kType>
void set_rows(KernelTable& table) {
  table.store_row[static_cast<int>(kType)] = store_row<kType>;
  table.load_row[static_cast<int>(kType)] = load_row<kType>;
}

}  // namespace

void fill_scalar_vector(KernelTable& table) {
  table.add = add;
  table.hadamard = hadamard;
  table.silu = silu;
  table.swiglu = swiglu;
  set_activation<KernelActivation::silu>(table);
  set_activation<KernelActivation::gelu_tanh>(table);
  set_activation<KernelActivation::gelu_erf>(table);
  set_activation<KernelActivation::relu_squared>(table);
  set_activation<KernelActivation::clamped_silu>(table);
  set_activation<KernelActivation::sigmoid>(table);
  set_activation<KernelActivation::softplus>(table);
  table.soft_cap = soft_cap;
  table.scale = scale;
  table.saxpy = saxpy;
  table.dot = dot;
  table.sum_squares = sum_squares;
  table.rms_norm = rms_norm;
  table.softmax = softmax;
  table.rope_half_split = rope_half_split;
  table.rope_interleaved = rope_interleaved;
  table.matmul = matmul;
  set_rows<DType::f32>(table);
  set_rows<DType::f16>(table);
  set_rows<DType::bf16>(table);
  set_rows<DType::q8_0>(table);
}

void fill_scalar(KernelTable& table) {
  table.name = "scalar";
  table.token_tile = 16;
  fill_scalar_vector(table);
  fill_scalar_linear(table);
  fill_scalar_attention(table);
  fill_scalar_recurrent(table);
}

}  // namespace inferno
