// 8-bit and bf16 matrix products, half-float products with f32 sums: what the tables with and without assembly consist
// of.
#pragma once

#include "backend/cpu/kernels/arm/attention_bf16.h"
#include "backend/cpu/kernels/arm/bf16_linear.h"
#include "backend/cpu/kernels/arm/gemm.h"
#include "backend/cpu/kernels/arm/plain_linear.h"

namespace inferno {
namespace {

inline void fill_i8mm(KernelTable& table, const char* name) {
  table.name = name;
  fill_quantized_gemm(table, name);
  set_plain<F16Columns, DType::f16>(table, name);
  set_bf16(table, name);
  set_bf16_attention(table, name);
}

}  // namespace
}  // namespace inferno
