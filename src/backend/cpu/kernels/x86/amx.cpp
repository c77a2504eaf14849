// The amx table: prefill with the 8-bit matrix tiles; the selector has asked for permission to use them.
#include "backend/cpu/kernels/x86/amx_gemm.h"

namespace inferno {

void fill_amx(KernelTable& table) {
  table.name = "amx";
  fill_quantized(table, []<InterleavedFormat kFormat>(KernelDType dtype) {
    return LinearKernel{"amx",      &interleaved_layout(dtype), &kPaddedRows<kFormat.block>,
                        kPanelRows, amx_scratch<kFormat>,       run_amx<kFormat>};
  });
}

}  // namespace inferno
