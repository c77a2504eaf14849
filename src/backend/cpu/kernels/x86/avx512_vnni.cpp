// The avx512_vnni table: 8-bit dot products in one instruction, panels of 16 rows, 16 floats at once.
#include "backend/cpu/kernels/x86/attention.h"
#include "backend/cpu/kernels/x86/gemm.h"
#include "backend/cpu/kernels/x86/plain_linear.h"
#include "backend/cpu/kernels/x86/recurrent.h"
#include "backend/cpu/kernels/x86/vector_ops.h"

namespace inferno {

void fill_avx512_vnni(KernelTable& table) {
  table.name = "avx512_vnni";
  fill_vector_ops(table);
  fill_quantized(table, []<InterleavedFormat kFormat>(DType dtype) {
    return LinearKernel{"avx512_vnni",         &interleaved_layout(dtype), &kRows<kFormat.block>, kPanelRows,
                        gemm_scratch<kFormat>, run_gemm<kFormat>,          kPrefetchTokens};
  });
  fill_plain(table, "avx512_vnni");
  fill_attention(table, "avx512_vnni");
  fill_recurrent<WideLanes>(table);
}

}  // namespace inferno
