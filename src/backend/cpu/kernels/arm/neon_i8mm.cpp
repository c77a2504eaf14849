// The neon_i8mm table: 8-bit and bf16 matrix products.
#include "backend/cpu/kernels/arm/gemm.h"

namespace inferno {

void fill_neon_i8mm(KernelTable& table) {
  table.name = "neon_i8mm";
  fill_quantized_gemm(table, "neon_i8mm");
}

}  // namespace inferno
