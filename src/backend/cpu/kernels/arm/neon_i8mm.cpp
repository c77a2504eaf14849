// The neon_i8mm table: 8-bit and bf16 matrix products, half-float products with f32 sums.
#include "backend/cpu/kernels/arm/attention_bf16.h"
#include "backend/cpu/kernels/arm/bf16_linear.h"
#include "backend/cpu/kernels/arm/gemm.h"
#include "backend/cpu/kernels/arm/plain_linear.h"

namespace inferno {

void fill_neon_i8mm(KernelTable& table) {
  table.name = "neon_i8mm";
  fill_quantized_gemm(table, "neon_i8mm");
  set_plain<F16Columns, KernelDType::f16>(table, "neon_i8mm");
  set_bf16(table, "neon_i8mm");
  set_bf16_attention(table, "neon_i8mm");
}

}  // namespace inferno
