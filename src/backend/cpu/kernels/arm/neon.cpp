// The neon table: plain 64-bit Arm, no extensions.
#include "backend/cpu/kernels/arm/gemv.h"

namespace inferno {

void fill_neon(KernelTable& table) {
  table.name = "neon";
  fill_quantized_gemv(table, "neon");
}

}  // namespace inferno
