// The inner loops of the 8-bit matrix product of the K formats, 8 rows x 6 tokens, in assembly: they need all 32
// registers, and their speed depends on the order of the instructions, which a compiler changes
// (docs/decisions/neon-prefill.md). The order is written by hand, for Arm Neoverse V1 with g++ 12.2 and GNU as 2.40;
// gemm.h has the same in intrinsics.
//
// Registers: v0-v11 the integer sums, row pair i and token pair j in v(3i + j), each a 2 x 2 result; v12-v23 the scaled
// sums in the same order; v24-v26 eight columns of the three token pairs, v27-v29 of row pairs, loaded two ahead.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/kernels/arm/assembly.h"

namespace inferno {
namespace {

// clang-format off
#define INFERNO_ROW(row, a, b, c) \
  "smmla v" #a ".4s, v" #row ".16b, v24.16b\n smmla v" #b ".4s, v" #row ".16b, v25.16b\n" \
  "smmla v" #c ".4s, v" #row ".16b, v26.16b\n"
#define INFERNO_TOKENS(x0, x1, x2) INFERNO_LOAD(24, x, x0) INFERNO_LOAD(25, x, x1) INFERNO_LOAD(26, x, x2)
// Three instructions of the same kind.
#define INFERNO_THREE(op, a, b, c, d, e, f, g, h, i) \
  op " v" #a ".4s, v" #b ".4s, v" #c ".4s\n " op " v" #d ".4s, v" #e ".4s, v" #f ".4s\n " \
  op " v" #g ".4s, v" #h ".4s, v" #i ".4s\n"
#define INFERNO_ZERO_SUMS \
  INFERNO_ZERO_4(0, 1, 2, 3) INFERNO_ZERO_4(4, 5, 6, 7) INFERNO_ZERO_4(8, 9, 10, 11) \
  INFERNO_ZERO_4(12, 13, 14, 15) INFERNO_ZERO_4(16, 17, 18, 19) INFERNO_ZERO_4(20, 21, 22, 23)

// Super-blocks of 256 columns in sub-blocks with integer scales. Of w: 2048 bytes of levels; 4 vectors of doubled scales
// d; with minimums 4 of the doubled m; for each sub-block 4 vectors of doubled integers, the sub-block's scale less the
// next one's; with minimums 4 vectors of row pairs of them. out[12]: the running sums, added to what out holds.
//
// The integer sums are not cleared between sub-blocks: the sum of (sum up to j) * (scale j - scale j + 1) is the sum of
// (sum of j) * scale j, in integers exactly, whatever overflows on the way.
#define INFERNO_LOAD_AND_ROW(next, at, row, a, b, c) INFERNO_LOAD(next, w, at) INFERNO_ROW(row, a, b, c)
#define INFERNO_TIMES_SCALE(at, a, b, c, ra, rb, rc) \
  INFERNO_LOAD(31, s, at) INFERNO_THREE("mla", ra, a, 31, rb, b, 31, rc, c, 31)
#define INFERNO_TIMES_SCALE_0(at) INFERNO_TIMES_SCALE(at, 0, 1, 2, 12, 13, 14)
#define INFERNO_TIMES_SCALE_1(at) INFERNO_TIMES_SCALE(at, 3, 4, 5, 15, 16, 17)
#define INFERNO_TIMES_SCALE_2(at) INFERNO_TIMES_SCALE(at, 6, 7, 8, 18, 19, 20)
#define INFERNO_TIMES_SCALE_3(at) INFERNO_TIMES_SCALE(at, 9, 10, 11, 21, 22, 23)

#define INFERNO_SUB_BLOCKS_32 \
  "mov %[n], #8\n" \
  ".p2align 5\n" \
  "2:\n" \
  INFERNO_LOAD(27, w, 0) INFERNO_LOAD(28, w, 16) \
  INFERNO_TOKENS(0, 16, 32) \
  INFERNO_LOAD_AND_ROW(29, 32, 27, 0, 1, 2) INFERNO_LOAD_AND_ROW(27, 48, 28, 3, 4, 5) \
  INFERNO_LOAD_AND_ROW(28, 64, 29, 6, 7, 8) INFERNO_LOAD_AND_ROW(29, 80, 27, 9, 10, 11) \
  INFERNO_TOKENS(48, 64, 80) \
  INFERNO_LOAD_AND_ROW(27, 96, 28, 0, 1, 2) INFERNO_LOAD_AND_ROW(28, 112, 29, 3, 4, 5) \
  INFERNO_LOAD_AND_ROW(29, 128, 27, 6, 7, 8) INFERNO_LOAD_AND_ROW(27, 144, 28, 9, 10, 11) \
  INFERNO_TOKENS(96, 112, 128) \
  INFERNO_LOAD_AND_ROW(28, 160, 29, 0, 1, 2) INFERNO_LOAD_AND_ROW(29, 176, 27, 3, 4, 5) \
  INFERNO_LOAD_AND_ROW(27, 192, 28, 6, 7, 8) INFERNO_LOAD_AND_ROW(28, 208, 29, 9, 10, 11) \
  INFERNO_TOKENS(144, 160, 176) \
  INFERNO_LOAD_AND_ROW(29, 224, 27, 0, 1, 2) INFERNO_TIMES_SCALE_0(0) \
  INFERNO_LOAD_AND_ROW(27, 240, 28, 3, 4, 5) INFERNO_TIMES_SCALE_1(16) \
  INFERNO_ROW(29, 6, 7, 8) INFERNO_TIMES_SCALE_2(32) \
  INFERNO_ROW(27, 9, 10, 11) INFERNO_TIMES_SCALE_3(48) \
  "add %[w], %[w], #256\n add %[s], %[s], #64\n add %[x], %[x], #192\n" \
  "subs %[n], %[n], #1\n" \
  "b.ne 2b\n"
#define INFERNO_SUB_BLOCK_16(x0, x1, x2, x3, x4, x5, r0, r1, r2, r3, r4, r5, r6, r7, s0, s1, s2, s3) \
  INFERNO_LOAD(27, w, r0) INFERNO_LOAD(28, w, r1) \
  INFERNO_TOKENS(x0, x1, x2) \
  INFERNO_LOAD_AND_ROW(29, r2, 27, 0, 1, 2) INFERNO_LOAD_AND_ROW(27, r3, 28, 3, 4, 5) \
  INFERNO_LOAD_AND_ROW(28, r4, 29, 6, 7, 8) INFERNO_LOAD_AND_ROW(29, r5, 27, 9, 10, 11) \
  INFERNO_TOKENS(x3, x4, x5) \
  INFERNO_LOAD_AND_ROW(27, r6, 28, 0, 1, 2) INFERNO_TIMES_SCALE_0(s0) \
  INFERNO_LOAD_AND_ROW(28, r7, 29, 3, 4, 5) INFERNO_TIMES_SCALE_1(s1) \
  INFERNO_ROW(27, 6, 7, 8) INFERNO_TIMES_SCALE_2(s2) \
  INFERNO_ROW(28, 9, 10, 11) INFERNO_TIMES_SCALE_3(s3)
#define INFERNO_SUB_BLOCKS_16 \
  "mov %[n], #8\n" \
  ".p2align 5\n" \
  "2:\n" \
  INFERNO_SUB_BLOCK_16(0, 16, 32, 48, 64, 80, 0, 16, 32, 48, 64, 80, 96, 112, 0, 16, 32, 48) \
  INFERNO_SUB_BLOCK_16(96, 112, 128, 144, 160, 176, 128, 144, 160, 176, 192, 208, 224, 240, 64, 80, 96, 112) \
  "add %[w], %[w], #256\n add %[s], %[s], #128\n add %[x], %[x], #192\n" \
  "subs %[n], %[n], #1\n" \
  "b.ne 2b\n"

// The integer sums (ia, ib, ic) of a row pair, scaled, onto three sums in memory. w is at d, v24-v26 the tokens' d.
// `minimums` changes the sums in v0-v2 before they go back.
#define INFERNO_PRODUCTS_OF_SCALES INFERNO_THREE("fmul", 28, 31, 24, 29, 31, 25, 30, 31, 26)
#define INFERNO_TO_FLOAT(a, b, c) \
  "scvtf v" #a ".4s, v" #a ".4s\n scvtf v" #b ".4s, v" #b ".4s\n scvtf v" #c ".4s, v" #c ".4s\n"
#define INFERNO_ADD_ROW(d, to, to2, ia, ib, ic, minimums) \
  INFERNO_LOAD(31, w, d) "ldp q0, q1, [%[out], #" #to "]\n" INFERNO_LOAD(2, out, to2) \
  INFERNO_TO_FLOAT(ia, ib, ic) INFERNO_PRODUCTS_OF_SCALES INFERNO_THREE("fmla", 0, ia, 28, 1, ib, 29, 2, ic, 30) \
  minimums \
  "stp q0, q1, [%[out], #" #to "]\n str q2, [%[out], #" #to2 "]\n"
// Less m * sum of minimums * (64 * high + low). s is at the minimums; v6-v8 the tokens' high, v9-v11 their low parts.
#define INFERNO_MINIMUMS(at, m) \
  INFERNO_LOAD(27, s, at) INFERNO_LOAD(31, w, m) INFERNO_ZERO(3) INFERNO_ZERO(4) INFERNO_ZERO(5) \
  "smmla v3.4s, v27.16b, v6.16b\n smmla v4.4s, v27.16b, v7.16b\n smmla v5.4s, v27.16b, v8.16b\n" \
  "shl v3.4s, v3.4s, #6\n shl v4.4s, v4.4s, #6\n shl v5.4s, v5.4s, #6\n" \
  "smmla v3.4s, v27.16b, v9.16b\n smmla v4.4s, v27.16b, v10.16b\n smmla v5.4s, v27.16b, v11.16b\n" \
  INFERNO_TO_FLOAT(3, 4, 5) INFERNO_PRODUCTS_OF_SCALES INFERNO_THREE("fmls", 0, 3, 28, 1, 4, 29, 2, 5, 30)

inline void multiply_blocks_256_by_32(const uint8_t* w, const int8_t* x, int64_t blocks, float32x4_t* out) {
  int64_t n = 0;
  const uint8_t* s = nullptr;
  __asm__ volatile(
      "1:\n"
      INFERNO_ZERO_SUMS
      "add %[s], %[w], #2176\n"
      INFERNO_SUB_BLOCKS_32
      INFERNO_TOKENS(0, 16, 32)
      INFERNO_LOAD(6, x, 48) INFERNO_LOAD(7, x, 64) INFERNO_LOAD(8, x, 80)
      INFERNO_LOAD(9, x, 96) INFERNO_LOAD(10, x, 112) INFERNO_LOAD(11, x, 128)
      INFERNO_ADD_ROW(0, 0, 32, 12, 13, 14, INFERNO_MINIMUMS(0, 64))
      INFERNO_ADD_ROW(16, 48, 80, 15, 16, 17, INFERNO_MINIMUMS(16, 80))
      INFERNO_ADD_ROW(32, 96, 128, 18, 19, 20, INFERNO_MINIMUMS(32, 96))
      INFERNO_ADD_ROW(48, 144, 176, 21, 22, 23, INFERNO_MINIMUMS(48, 112))
      "add %[w], %[s], #64\n add %[x], %[x], #336\n"
      "subs %[blocks], %[blocks], #1\n"
      "b.ne 1b\n"
      : [w] "+r"(w), [s] "+r"(s), [x] "+r"(x), [n] "+r"(n), [blocks] "+r"(blocks)
      : [out] "r"(out)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}

inline void multiply_blocks_256_by_16(const uint8_t* w, const int8_t* x, int64_t blocks, float32x4_t* out) {
  int64_t n = 0;
  const uint8_t* s = nullptr;
  __asm__ volatile(
      "1:\n"
      INFERNO_ZERO_SUMS
      "add %[s], %[w], #2112\n"
      INFERNO_SUB_BLOCKS_16
      INFERNO_TOKENS(0, 16, 32)
      INFERNO_ADD_ROW(0, 0, 32, 12, 13, 14, ) INFERNO_ADD_ROW(16, 48, 80, 15, 16, 17, )
      INFERNO_ADD_ROW(32, 96, 128, 18, 19, 20, ) INFERNO_ADD_ROW(48, 144, 176, 21, 22, 23, )
      "mov %[w], %[s]\n add %[x], %[x], #336\n"
      "subs %[blocks], %[blocks], #1\n"
      "b.ne 1b\n"
      : [w] "+r"(w), [s] "+r"(s), [x] "+r"(x), [n] "+r"(n), [blocks] "+r"(blocks)
      : [out] "r"(out)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}
// clang-format on

#undef INFERNO_ROW
#undef INFERNO_TOKENS
#undef INFERNO_THREE
#undef INFERNO_ZERO_SUMS
#undef INFERNO_LOAD_AND_ROW
#undef INFERNO_TIMES_SCALE
#undef INFERNO_TIMES_SCALE_0
#undef INFERNO_TIMES_SCALE_1
#undef INFERNO_TIMES_SCALE_2
#undef INFERNO_TIMES_SCALE_3
#undef INFERNO_SUB_BLOCKS_32
#undef INFERNO_SUB_BLOCK_16
#undef INFERNO_SUB_BLOCKS_16
#undef INFERNO_PRODUCTS_OF_SCALES
#undef INFERNO_TO_FLOAT
#undef INFERNO_ADD_ROW
#undef INFERNO_MINIMUMS

}  // namespace
}  // namespace inferno
