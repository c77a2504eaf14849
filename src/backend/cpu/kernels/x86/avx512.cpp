// The avx512 table: 512-bit vectors without the 8-bit dot products.
#include "backend/cpu/kernels/x86/attention.h"
#include "backend/cpu/kernels/x86/pair_gemm.h"
#include "backend/cpu/kernels/x86/plain_tiles.h"
#include "backend/cpu/kernels/x86/recurrent.h"
#include "backend/cpu/kernels/x86/vector_ops.h"

namespace inferno {

void fill_avx512(KernelTable& table) {
  table.name = "avx512";
  table.token_tile = kSideStep;
  fill_vector_ops(table);
  fill_quantized(table, []<InterleavedFormat kFormat>(DType dtype) {
    return LinearKernel{"avx512",       &interleaved_layout(dtype), &kSide<kFormat.block, kWordLevels<kFormat>>,
                        kPanelRows,     pair_scratch<kFormat>,      run_pairs<kFormat>,
                        kPrefetchTokens};
  });
  fill_plain_tiles(table, "avx512");
  fill_attention(table, "avx512");
  fill_recurrent<WideLanes>(table);
}

}  // namespace inferno
