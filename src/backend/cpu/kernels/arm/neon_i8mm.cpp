// The neon_i8mm table: 8-bit and bf16 matrix products, the hot loops as assembly (schedules/README.md).
#include "backend/cpu/kernels/arm/neon_i8mm.h"

namespace inferno {

void fill_neon_i8mm(KernelTable& table) {
  fill_i8mm(table, "neon_i8mm");
}

}  // namespace inferno
