// Attention over a bf16 cache with the bf16 matrix instructions: one kernel for few queries, one for many, with the
// same bits.
#pragma once

#include "backend/cpu/kernels/arm/attention_bf16_few.h"
#include "backend/cpu/kernels/arm/attention_bf16_many.h"

namespace inferno {
namespace {

inline constexpr int64_t kBf16QueryBlock = 256;

inline int64_t bf16_attention_scratch(int64_t /*queries*/, int64_t head_dim) {
  const int64_t few = few_scratch_bytes(head_dim);
  const int64_t many = many_scratch_bytes(head_dim);
  return few > many ? few : many;
}

inline void run_bf16_attention(const SpanTask& task) noexcept {
  if (few_queries(task)) {
    run_few_bf16(task);
  } else {
    run_many_bf16(task);
  }
}

inline void set_bf16_attention(KernelTable& table, const char* name) {
  table.attention[static_cast<int>(DType::bf16)] = {name, kBf16QueryBlock, bf16_attention_scratch, run_bf16_attention};
}

}  // namespace
}  // namespace inferno
