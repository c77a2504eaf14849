// The head of two tokens, multiplied with the levels of each row as they are (stream_few.cuh).
#pragma once

#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

inline constexpr int kFewTokens = 2;
// Rows per multiprocessor from which on a product is one of very many rows.
inline constexpr int kManyRows = 128;
[[nodiscard]] constexpr bool has_few_rows(DType dtype) {
  return dtype == DType::q8_0 || dtype == DType::q4_0 || dtype == DType::q4_k || dtype == DType::q5_k ||
         dtype == DType::q6_k;
}
// Whether a product is one of two tokens and very many quantized rows: launch_vector_product() then uses that kernel.
[[nodiscard]] bool few_rows_fit(const LaunchContext& c, const VectorProduct& p);

}  // namespace inferno::cuda
