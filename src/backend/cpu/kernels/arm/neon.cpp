// The neon table: plain 64-bit Arm, no extensions.
#include "backend/cpu/kernels/arm/attention_f32.h"
#include "backend/cpu/kernels/arm/gemv.h"
#include "backend/cpu/kernels/arm/plain_linear.h"
#include "backend/cpu/kernels/arm/vector_ops.h"

namespace inferno {

void fill_neon(KernelTable& table) {
  table.name = "neon";
  fill_vector_ops(table);
  fill_quantized_gemv(table, "neon");
  set_plain<F32Columns, DType::f32>(table, "neon");
  set_plain<F16Columns, DType::f16>(table, "neon");
  set_plain<Bf16Columns, DType::bf16>(table, "neon");
  set_f32_attention<DType::f32>(table, "neon");
  set_f32_attention<DType::f16>(table, "neon");
  set_f32_attention<DType::bf16>(table, "neon");
  set_f32_attention<DType::q8_0>(table, "neon");
}

}  // namespace inferno
