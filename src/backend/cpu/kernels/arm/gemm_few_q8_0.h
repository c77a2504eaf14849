// The inner loop of Q8_0 times eight tokens in assembly: it needs all 32 registers, and its speed depends on the order
// of the instructions, which is a searched schedule (docs/decisions/neon-prefill.md). gemm_few.h has the same in
// intrinsics.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/kernels/arm/assembly.h"
#include "backend/cpu/kernels/arm/schedules/smmla_8x8_neoverse_v1.h"

namespace inferno {
namespace {

// clang-format off
#define INFERNO_PREFETCH(level, a, b, c, d, e) \
  "prfm pldl" level ", [%[w], #" #a "]\n prfm pldl" level ", [%[w], #" #b "]\n prfm pldl" level ", [%[w], #" #c "]\n" \
  "prfm pldl" level ", [%[w], #" #d "]\n prfm pldl" level ", [%[w], #" #e "]\n"
#define INFERNO_BLOCK(stage0, stage1) \
  INFERNO_SMMLA_8X8(stage0, stage1) \
  stage0(INFERNO_PREFETCH("1strm", 1024, 1088, 1152, 1216, 1280) INFERNO_PREFETCH("2keep", 8192, 8256, 8320, 8384, 8448))

// sums[half][row pair][token pair] = a group of 8-bit levels by row pairs times four token pairs, those of tile x, then
// those of tile y: both halves of a block one after the other, so that the weights are one sequential stream.
//
// The weights are prefetched, the next blocks into L1 and later ones into L2: the hardware prefetcher does not keep up
// when the tokens fill much of L1, and either software prefetch alone makes it stop.
inline void few_q8_0(const uint8_t* w, const int8_t* x, const int8_t* y, int64_t blocks, float32x4_t* sums) {
  __asm__ volatile(
      INFERNO_ZERO_4(8, 9, 10, 11) INFERNO_ZERO_4(12, 13, 14, 15)
      INFERNO_ZERO_4(16, 17, 18, 19) INFERNO_ZERO_4(20, 21, 22, 23)
      INFERNO_PIPELINED_LOOP(INFERNO_BLOCK, "add %[w], %[w], #272\n add %[x], %[x], #160\n add %[y], %[y], #160\n")
      "stp q8, q9, [%[sums]]\n stp q10, q11, [%[sums], #32]\n stp q12, q13, [%[sums], #64]\n"
      "stp q14, q15, [%[sums], #96]\n stp q16, q17, [%[sums], #128]\n stp q18, q19, [%[sums], #160]\n"
      "stp q20, q21, [%[sums], #192]\n stp q22, q23, [%[sums], #224]\n"
      : [w] "+r"(w), [x] "+r"(x), [y] "+r"(y), [n] "+r"(blocks)
      : [sums] "r"(sums)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}
// clang-format on

#undef INFERNO_SMMLA_8X8
#undef INFERNO_PREFETCH
#undef INFERNO_BLOCK

}  // namespace
}  // namespace inferno
