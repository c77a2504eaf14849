// The avx512_vnni table: 8-bit dot products in one instruction, panels of 16 rows, 16 floats at once.
#include "backend/cpu/kernels/x86/attention.h"
#include "backend/cpu/kernels/x86/panel_side.h"
#include "backend/cpu/kernels/x86/plain_tiles.h"
#include "backend/cpu/kernels/x86/recurrent.h"
#include "backend/cpu/kernels/x86/side_gemm.h"
#include "backend/cpu/kernels/x86/vector_ops.h"

namespace inferno {

void fill_avx512_vnni(KernelTable& table) {
  table.name = "avx512_vnni";
  table.token_tile = kSideStep;
  fill_vector_ops(table);
  fill_quantized(table, []<InterleavedFormat kFormat>(DType dtype) {
    return LinearKernel{"avx512_vnni",  &interleaved_layout(dtype), &kSide<kFormat.block, false>,
                        kPanelRows,     side_scratch<kFormat>,      run_side<kFormat>,
                        kPrefetchTokens};
  });
  table.linear[static_cast<int>(DType::q8_0)] = {
      "avx512_vnni",  &byte_panel_layout(), &kSide<32, false, kPanelSideTokens>, kPanelRows, panel_side_scratch,
      run_panel_side, kPrefetchTokens};
  fill_plain_tiles(table, "avx512_vnni");
  fill_attention(table, "avx512_vnni");
  fill_recurrent<WideLanes>(table);
}

}  // namespace inferno
