// The amx table: prefill of quantized weights with the 8-bit matrix tiles, BF16 weights and attention with those of
// bf16; the selector has requested the system's permission to use them.
#include "backend/cpu/kernels/x86/amx_attention.h"
#include "backend/cpu/kernels/x86/amx_bf16.h"
#include "backend/cpu/kernels/x86/amx_gemm.h"

namespace inferno {

void fill_amx(KernelTable& table) {
  table.name = "amx";
  table.token_tile = 16;
  fill_quantized(table, []<InterleavedFormat kFormat>(DType dtype) {
    return LinearKernel{"amx",          &interleaved_layout(dtype), &kTokenTiles<kFormat.block>,
                        kPanelRows,     amx_scratch<kFormat>,       run_amx<kFormat>,
                        kPrefetchTokens};
  });
  table.linear[static_cast<int>(DType::q8_0)] = {
      "amx",          &byte_panel_layout(), &kTokenTiles<32, kPanelStreamTokens + 1, 128>,
      kPanelRows,     stored_panel_scratch, run_stored_panels,
      kPrefetchTokens};
  fill_amx_bf16(table, "amx");
  fill_amx_attention(table, "amx");
}

}  // namespace inferno
