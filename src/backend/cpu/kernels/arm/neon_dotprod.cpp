// The neon_dotprod table: 8-bit dot products.
#include "backend/cpu/kernels/arm/gemv.h"

namespace inferno {

void fill_neon_dotprod(KernelTable& table) {
  table.name = "neon_dotprod";
  fill_quantized_gemv(table, "neon_dotprod");
}

}  // namespace inferno
