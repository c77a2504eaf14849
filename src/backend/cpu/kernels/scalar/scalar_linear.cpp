// Linear as plain loops: weights in the file's own layout, one dot product per output.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels/scalar/scalar.h"
#include "quant/quant.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

namespace inferno {
namespace {

// ---- weights: one row per group, as in the file

template <DType kType>
int64_t canonical_bytes(int64_t k) {
  return row_bytes(kType, k);
}
template <DType kType>
void canonical_pack(const void* rows, int64_t /*count*/, int64_t k, void* group) noexcept {
  std::memcpy(group, rows, static_cast<size_t>(row_bytes(kType, k)));
}
template <DType kType>
void canonical_unpack(const void* group, int64_t /*row*/, int64_t k, void* row) noexcept {
  std::memcpy(row, group, static_cast<size_t>(row_bytes(kType, k)));
}
template <DType kType>
constexpr WeightLayout kCanonical = {"canonical", 1, canonical_bytes<kType>, canonical_pack<kType>,
                                     canonical_unpack<kType>};

// ---- activations

// Plain weights: f32 values, already rounded to the weight's type. A row with a value that F16 cannot hold stays f32.
int64_t plain_bytes(int64_t tokens, int64_t k) {
  return (tokens * k * 4 + 63) / 64 * 64;
}

void prepare_f32(const float* x, int64_t x_stride, int64_t /*tokens*/, int64_t k, int64_t begin, int64_t end,
                 void* buffer) noexcept {
  for (int64_t t = begin; t < end; ++t) std::copy_n(x + t * x_stride, k, static_cast<float*>(buffer) + t * k);
}

void prepare_bf16(const float* x, int64_t x_stride, int64_t /*tokens*/, int64_t k, int64_t begin, int64_t end,
                  void* buffer) noexcept {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t i = 0; i < k; ++i) static_cast<float*>(buffer)[t * k + i] = to_float(to_bf16(x[t * x_stride + i]));
  }
}

void prepare_f16(const float* x, int64_t x_stride, int64_t /*tokens*/, int64_t k, int64_t begin, int64_t end,
                 void* buffer) noexcept {
  constexpr float kLargest = 65504;
  for (int64_t t = begin; t < end; ++t) {
    const float* from = x + t * x_stride;
    float* to = static_cast<float*>(buffer) + t * k;
    const bool fits = std::all_of(from, from + k, [](float v) { return !(std::fabs(v) > kLargest); });
    for (int64_t i = 0; i < k; ++i) to[i] = fits ? to_float(to_f16(from[i])) : from[i];
  }
}

constexpr ActivationLayout kF32 = {"f32", 1, plain_bytes, prepare_f32};
constexpr ActivationLayout kBf16 = {"bf16", 1, plain_bytes, prepare_bf16};
constexpr ActivationLayout kF16 = {"f16", 1, plain_bytes, prepare_f16};

// Quantized weights: one activation row after another (quant/activation.h).
template <int kBlock>
int64_t quantized_bytes(int64_t tokens, int64_t k) {
  return tokens * activation_row_bytes(kBlock, k);
}
template <int kBlock>
void prepare_quantized(const float* x, int64_t x_stride, int64_t /*tokens*/, int64_t k, int64_t begin, int64_t end,
                       void* buffer) noexcept {
  for (int64_t t = begin; t < end; ++t) {
    const ActivationRow row =
        activation_row(kBlock, static_cast<char*>(buffer) + t * activation_row_bytes(kBlock, k), k);
    if constexpr (kBlock == 32) {
      quantize_activation_32(x + t * x_stride, k, row);
    } else {
      quantize_activation_256(x + t * x_stride, k, row);
    }
  }
}
template <int kBlock>
constexpr ActivationLayout kQuantized = {kBlock == 32 ? "8 bits per 32" : "8 bits per 256", 1, quantized_bytes<kBlock>,
                                         prepare_quantized<kBlock>};

// ---- products

void put(const LinearTask& task, int64_t t, int64_t n, float product) noexcept {
  float& out = task.out[t * task.out_stride + n];
  out = task.accumulate ? out + product : product;
}

int64_t no_scratch(int64_t /*k*/, int64_t /*tokens*/) {
  return 0;
}

template <typename Half>
float dot_half(const Half* w, const float* x, int64_t k) noexcept {
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) sum = std::fma(to_float(w[i]), x[i], sum);
  return sum;
}

template <DType kType>
void run_plain(const LinearTask& task) noexcept {
  for (int64_t t = 0; t < task.tokens; ++t) {
    const float* x = static_cast<const float*>(task.activations) + t * task.k;
    for (int64_t n = task.row_begin; n < task.row_end; ++n) {
      const char* w = static_cast<const char*>(task.weight) + n * row_bytes(kType, task.k);
      float sum = 0;
      if constexpr (kType == DType::f32) {
        for (int64_t i = 0; i < task.k; ++i) sum = std::fma(reinterpret_cast<const float*>(w)[i], x[i], sum);
      } else if constexpr (kType == DType::f16) {
        sum = dot_half(reinterpret_cast<const f16*>(w), x, task.k);
      } else {
        sum = dot_half(reinterpret_cast<const bf16*>(w), x, task.k);
      }
      put(task, t, n, sum);
    }
  }
}

template <DType kType>
void run_quantized(const LinearTask& task) noexcept {
  constexpr int kBlock = activation_block(kType);
  for (int64_t t = 0; t < task.tokens; ++t) {
    const char* buffer = static_cast<const char*>(task.activations) + t * activation_row_bytes(kBlock, task.k);
    const ActivationView x = activation_row(kBlock, const_cast<char*>(buffer), task.k);
    for (int64_t n = task.row_begin; n < task.row_end; ++n) {
      const char* w = static_cast<const char*>(task.weight) + n * row_bytes(kType, task.k);
      put(task, t, n, dot_row(kType, w, x, task.k));
    }
  }
}

template <DType kType>
void set_quantized(KernelTable& table) {
  table.linear[static_cast<int>(kType)] = {"scalar", &kCanonical<kType>, &kQuantized<activation_block(kType)>,
                                           1,        no_scratch,         run_quantized<kType>};
}
template <DType kType>
void set_plain(KernelTable& table, const ActivationLayout& activation) {
  table.linear[static_cast<int>(kType)] = {"scalar", &kCanonical<kType>, &activation, 1, no_scratch, run_plain<kType>};
}

}  // namespace

void fill_scalar_linear(KernelTable& table) {
  set_plain<DType::f32>(table, kF32);
  set_plain<DType::f16>(table, kF16);
  set_plain<DType::bf16>(table, kBf16);
#define QUANTIZED(name, Name, ...) set_quantized<DType::name>(table);
#include "tensor/weight_formats.inc"
}

}  // namespace inferno
