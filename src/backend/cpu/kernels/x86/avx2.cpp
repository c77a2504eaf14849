// The avx2 table: AVX2 with FMA and F16C.
#include "backend/cpu/kernels/x86/attention.h"
#include "backend/cpu/kernels/x86/pair_gemm.h"
#include "backend/cpu/kernels/x86/plain_tiles.h"
#include "backend/cpu/kernels/x86/recurrent.h"
#include "backend/cpu/kernels/x86/vector_ops.h"

namespace inferno {

void fill_avx2(KernelTable& table) {
  table.name = "avx2";
  table.token_tile = kSideStep;
  fill_vector_ops(table);
  fill_quantized(table, []<InterleavedFormat kFormat>(DType dtype) {
    return LinearKernel{"avx2",           &interleaved_layout(dtype), &kSide<kFormat.block, kWordLevels<kFormat>>,
                        kInterleavedRows, pair_scratch<kFormat>,      run_pairs<kFormat>,
                        kPrefetchTokens};
  });
  fill_plain_tiles(table, "avx2");
  fill_attention(table, "avx2");
  fill_recurrent<WideLanes>(table);
}

}  // namespace inferno
