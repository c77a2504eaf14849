// What the files of OpRunner share.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cuda/cuda_weight.h"
#include "backend/cuda/kernels/kernels.h"
#include "base/checked.h"

namespace inferno::cuda {

[[nodiscard]] inline const CudaWeight& on_device(const Weight* w) {
  return static_cast<const CudaWeight&>(*w);
}
[[nodiscard]] inline const float* vector_or_null(const Weight* w) {
  return w == nullptr ? nullptr : on_device(w).vector();
}

// The type in which a weight is multiplied in wide mode.
[[nodiscard]] inline DType wide_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 ? dtype : DType::bf16;
}
[[nodiscard]] inline int64_t size_of(DType dtype) {
  return row_bytes(dtype, 1);
}
// bf16 values of unpacked weights that are in memory at a time.
inline constexpr int64_t kUnpackedValues = int64_t{32} << 20;
inline constexpr int64_t kUnpackedBytes = kUnpackedValues * 2;
// Of the quantized ones among some weights, as bf16.
[[nodiscard]] int64_t unpacked_bytes(std::span<const Weight* const> weights);
// Elements between rows of a wide input: 16-byte pieces.
[[nodiscard]] inline int64_t wide_stride(DType dtype, int64_t k) {
  return round_up(k, 16 / size_of(dtype));
}
// Scratch memory of `tokens` rows of a wide product, or of as few f32 rows as a vector product may have: then a step of
// few tokens needs no more than the large one that was planned.
[[nodiscard]] inline int64_t rows_bytes(int64_t tokens, int64_t cols, DType dtype) {
  return std::max(tokens * size_of(dtype), kMaxVectorTokens * size_of(DType::f32)) * cols;
}

// The same of f32 rows, whatever kernel writes them.
[[nodiscard]] inline int64_t f32_rows_bytes(int64_t tokens, int64_t cols) {
  return std::max<int64_t>(tokens, kMaxVectorTokens) * cols * size_of(DType::f32);
}

}  // namespace inferno::cuda
