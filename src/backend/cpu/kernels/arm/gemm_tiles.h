// The inner loops of the 8-bit matrix product, 8 rows x 6 tokens, as assembly: they need all 32 registers, and what a
// compiler makes of the same intrinsics is a sixth slower (bench/ladder/gemm_tile.cpp has the intrinsics).
//
// Registers: v0-v11 the sums of the current 8 x 6 block, row pair i and token pair j in v(3i + j), each a 2 x 2 result;
// v12-v23 the running sums in the same order; v24-v26 eight columns of the three token pairs; v27, v28 of a row pair.
// The core keeps about five instructions a cycle in flight, so what counts is their number, and that the scaling of a
// row pair directly follows its last product.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace inferno {
namespace {

// clang-format off
#define INFERNO_TOKENS(a, b, c) \
  "ldr q24, [%[x], #" a "]\n ldr q25, [%[x], #" b "]\n ldr q26, [%[x], #" c "]\n"
#define INFERNO_FIRST(row, at, a, b, c) \
  "ldr q" row ", [%[w], #" at "]\n" \
  "movi v" a ".2d, #0\n smmla v" a ".4s, v" row ".16b, v24.16b\n" \
  "movi v" b ".2d, #0\n smmla v" b ".4s, v" row ".16b, v25.16b\n" \
  "movi v" c ".2d, #0\n smmla v" c ".4s, v" row ".16b, v26.16b\n"
#define INFERNO_NEXT(row, at, a, b, c) \
  "ldr q" row ", [%[w], #" at "]\n" \
  "smmla v" a ".4s, v" row ".16b, v24.16b\n" \
  "smmla v" b ".4s, v" row ".16b, v25.16b\n" \
  "smmla v" c ".4s, v" row ".16b, v26.16b\n"
// Four row pairs x 8 columns: offsets of the tokens and of the rows.
#define INFERNO_FIRST_STEP(x0, x1, x2, r0, r1, r2, r3) \
  INFERNO_TOKENS(x0, x1, x2) INFERNO_FIRST("27", r0, "0", "1", "2") INFERNO_FIRST("28", r1, "3", "4", "5") \
  INFERNO_FIRST("27", r2, "6", "7", "8") INFERNO_FIRST("28", r3, "9", "10", "11")
#define INFERNO_NEXT_STEP(x0, x1, x2, r0, r1, r2, r3) \
  INFERNO_TOKENS(x0, x1, x2) INFERNO_NEXT("27", r0, "0", "1", "2") INFERNO_NEXT("28", r1, "3", "4", "5") \
  INFERNO_NEXT("27", r2, "6", "7", "8") INFERNO_NEXT("28", r3, "9", "10", "11")
// running += float(sum) * (scale of the rows * scale of the tokens)
#define INFERNO_SCALE_F32(at, a, b, c, ra, rb, rc) \
  "ldr q27, [%[w], #" at "]\n" \
  "fmul v28.4s, v27.4s, v24.4s\n scvtf v" a ".4s, v" a ".4s\n fmla v" ra ".4s, v" a ".4s, v28.4s\n" \
  "fmul v29.4s, v27.4s, v25.4s\n scvtf v" b ".4s, v" b ".4s\n fmla v" rb ".4s, v" b ".4s, v29.4s\n" \
  "fmul v31.4s, v27.4s, v26.4s\n scvtf v" c ".4s, v" c ".4s\n fmla v" rc ".4s, v" c ".4s, v31.4s\n"
// Last 8 columns of a sub-block of a row pair, then running += sum * integer scale.
#define INFERNO_LAST(row, at, scale, a, b, c, ra, rb, rc) \
  INFERNO_NEXT(row, at, a, b, c) \
  "ldr q31, [%[s], #" scale "]\n" \
  "mla v" ra ".4s, v" a ".4s, v31.4s\n mla v" rb ".4s, v" b ".4s, v31.4s\n mla v" rc ".4s, v" c ".4s, v31.4s\n"
#define INFERNO_LAST_STEP(x0, x1, x2, r0, r1, r2, r3, s0, s1, s2, s3) \
  INFERNO_TOKENS(x0, x1, x2) \
  INFERNO_LAST("27", r0, s0, "0", "1", "2", "12", "13", "14") \
  INFERNO_LAST("28", r1, s1, "3", "4", "5", "15", "16", "17") \
  INFERNO_LAST("27", r2, s2, "6", "7", "8", "18", "19", "20") \
  INFERNO_LAST("28", r3, s3, "9", "10", "11", "21", "22", "23")
#define INFERNO_CLEAR_RUNNING \
  "movi v12.2d, #0\n movi v13.2d, #0\n movi v14.2d, #0\n movi v15.2d, #0\n movi v16.2d, #0\n movi v17.2d, #0\n" \
  "movi v18.2d, #0\n movi v19.2d, #0\n movi v20.2d, #0\n movi v21.2d, #0\n movi v22.2d, #0\n movi v23.2d, #0\n"
#define INFERNO_STORE_RUNNING \
  "stp q12, q13, [%[out]]\n stp q14, q15, [%[out], #32]\n stp q16, q17, [%[out], #64]\n" \
  "stp q18, q19, [%[out], #96]\n stp q20, q21, [%[out], #128]\n stp q22, q23, [%[out], #160]\n"
#define INFERNO_ALL_VECTORS \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", \
  "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31"

// Blocks of 32 columns with one float scale. A block of w: 256 bytes of levels, then 4 vectors of doubled scales; of x:
// as gemm_activations.h says. out[12]: the running sums.
inline void multiply_blocks_32(const uint8_t* w, const int8_t* x, int64_t blocks, float32x4_t* out) {
  __asm__ volatile(
      INFERNO_CLEAR_RUNNING
      ".p2align 5\n"
      "1:\n"
      INFERNO_FIRST_STEP("0", "16", "32", "0", "16", "32", "48")
      INFERNO_NEXT_STEP("48", "64", "80", "64", "80", "96", "112")
      INFERNO_NEXT_STEP("96", "112", "128", "128", "144", "160", "176")
      INFERNO_NEXT_STEP("144", "160", "176", "192", "208", "224", "240")
      INFERNO_TOKENS("192", "208", "224")
      INFERNO_SCALE_F32("256", "0", "1", "2", "12", "13", "14")
      INFERNO_SCALE_F32("272", "3", "4", "5", "15", "16", "17")
      INFERNO_SCALE_F32("288", "6", "7", "8", "18", "19", "20")
      INFERNO_SCALE_F32("304", "9", "10", "11", "21", "22", "23")
      "add %[w], %[w], #320\n add %[x], %[x], #240\n"
      "subs %[n], %[n], #1\n"
      "b.ne 1b\n"
      INFERNO_STORE_RUNNING
      : [w] "+r"(w), [x] "+r"(x), [n] "+r"(blocks)
      : [out] "r"(out)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}

// Super-blocks of 256 columns in sub-blocks with integer scales. Of w: 2048 bytes of levels; 4 vectors of doubled scales
// d; with minimums 4 of the doubled m; for each sub-block 4 vectors of doubled integer scales; with minimums 4 vectors of
// row pairs of them. out[12]: the running sums; minimum[12]: those of the minimums. Both begin at what stands there.
#define INFERNO_SUB_BLOCKS_32 \
  "mov %[n], #4\n" \
  ".p2align 5\n" \
  "2:\n" \
  INFERNO_FIRST_STEP("0", "16", "32", "0", "16", "32", "48") \
  INFERNO_NEXT_STEP("48", "64", "80", "64", "80", "96", "112") \
  INFERNO_NEXT_STEP("96", "112", "128", "128", "144", "160", "176") \
  INFERNO_LAST_STEP("144", "160", "176", "192", "208", "224", "240", "0", "16", "32", "48") \
  INFERNO_FIRST_STEP("192", "208", "224", "256", "272", "288", "304") \
  INFERNO_NEXT_STEP("240", "256", "272", "320", "336", "352", "368") \
  INFERNO_NEXT_STEP("288", "304", "320", "384", "400", "416", "432") \
  INFERNO_LAST_STEP("336", "352", "368", "448", "464", "480", "496", "64", "80", "96", "112") \
  "add %[w], %[w], #512\n add %[s], %[s], #128\n add %[x], %[x], #384\n" \
  "subs %[n], %[n], #1\n" \
  "b.ne 2b\n"
#define INFERNO_SUB_BLOCKS_16 \
  "mov %[n], #8\n" \
  ".p2align 5\n" \
  "2:\n" \
  INFERNO_FIRST_STEP("0", "16", "32", "0", "16", "32", "48") \
  INFERNO_LAST_STEP("48", "64", "80", "64", "80", "96", "112", "0", "16", "32", "48") \
  INFERNO_FIRST_STEP("96", "112", "128", "128", "144", "160", "176") \
  INFERNO_LAST_STEP("144", "160", "176", "192", "208", "224", "240", "64", "80", "96", "112") \
  "add %[w], %[w], #256\n add %[s], %[s], #128\n add %[x], %[x], #192\n" \
  "subs %[n], %[n], #1\n" \
  "b.ne 2b\n"
// The integer sums (ia, ib, ic) of a row pair, scaled, onto three sums in memory. w is at d, v24-v26 the tokens' d.
#define INFERNO_ADD_SCALED(at, to, to2, ia, ib, ic) \
  "ldr q27, [%[w], #" at "]\n ldp q0, q1, [%[out], #" to "]\n ldr q2, [%[out], #" to2 "]\n" \
  "fmul v28.4s, v27.4s, v24.4s\n scvtf v" ia ".4s, v" ia ".4s\n fmla v0.4s, v" ia ".4s, v28.4s\n" \
  "fmul v29.4s, v27.4s, v25.4s\n scvtf v" ib ".4s, v" ib ".4s\n fmla v1.4s, v" ib ".4s, v29.4s\n" \
  "fmul v30.4s, v27.4s, v26.4s\n scvtf v" ic ".4s, v" ic ".4s\n fmla v2.4s, v" ic ".4s, v30.4s\n" \
  "stp q0, q1, [%[out], #" to "]\n str q2, [%[out], #" to2 "]\n"
// sum of minimums * (64 * high + low) of the tokens' sums, times m * d. s is at the minimums; v6-v8 high, v9-v11 low.
#define INFERNO_ADD_MINIMUMS(at, m, to, to2) \
  "ldr q27, [%[s], #" at "]\n ldr q31, [%[w], #" m "]\n" \
  "ldp q0, q1, [%[minimum], #" to "]\n ldr q2, [%[minimum], #" to2 "]\n" \
  "movi v3.2d, #0\n movi v4.2d, #0\n movi v5.2d, #0\n" \
  "smmla v3.4s, v27.16b, v6.16b\n smmla v4.4s, v27.16b, v7.16b\n smmla v5.4s, v27.16b, v8.16b\n" \
  "shl v3.4s, v3.4s, #6\n shl v4.4s, v4.4s, #6\n shl v5.4s, v5.4s, #6\n" \
  "smmla v3.4s, v27.16b, v9.16b\n smmla v4.4s, v27.16b, v10.16b\n smmla v5.4s, v27.16b, v11.16b\n" \
  "fmul v28.4s, v31.4s, v24.4s\n scvtf v3.4s, v3.4s\n fmla v0.4s, v3.4s, v28.4s\n" \
  "fmul v29.4s, v31.4s, v25.4s\n scvtf v4.4s, v4.4s\n fmla v1.4s, v4.4s, v29.4s\n" \
  "fmul v30.4s, v31.4s, v26.4s\n scvtf v5.4s, v5.4s\n fmla v2.4s, v5.4s, v30.4s\n" \
  "stp q0, q1, [%[minimum], #" to "]\n str q2, [%[minimum], #" to2 "]\n"
#define INFERNO_ADD_ALL_SCALED \
  INFERNO_TOKENS("0", "16", "32") \
  INFERNO_ADD_SCALED("0", "0", "32", "12", "13", "14") INFERNO_ADD_SCALED("16", "48", "80", "15", "16", "17") \
  INFERNO_ADD_SCALED("32", "96", "128", "18", "19", "20") INFERNO_ADD_SCALED("48", "144", "176", "21", "22", "23")

inline void multiply_blocks_256_by_32(const uint8_t* w, const int8_t* x, int64_t blocks, float32x4_t* out,
                                      float32x4_t* minimum) {
  int64_t n = 0;
  const uint8_t* s = nullptr;
  __asm__ volatile(
      "1:\n"
      INFERNO_CLEAR_RUNNING
      "add %[s], %[w], #2176\n"
      INFERNO_SUB_BLOCKS_32
      INFERNO_ADD_ALL_SCALED
      "ldr q6, [%[x], #48]\n ldr q7, [%[x], #64]\n ldr q8, [%[x], #80]\n"
      "ldr q9, [%[x], #96]\n ldr q10, [%[x], #112]\n ldr q11, [%[x], #128]\n"
      INFERNO_ADD_MINIMUMS("0", "64", "0", "32") INFERNO_ADD_MINIMUMS("16", "80", "48", "80")
      INFERNO_ADD_MINIMUMS("32", "96", "96", "128") INFERNO_ADD_MINIMUMS("48", "112", "144", "176")
      "add %[w], %[s], #64\n add %[x], %[x], #336\n"
      "subs %[blocks], %[blocks], #1\n"
      "b.ne 1b\n"
      : [w] "+r"(w), [s] "+r"(s), [x] "+r"(x), [n] "+r"(n), [blocks] "+r"(blocks)
      : [out] "r"(out), [minimum] "r"(minimum)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}

inline void multiply_blocks_256_by_16(const uint8_t* w, const int8_t* x, int64_t blocks, float32x4_t* out) {
  int64_t n = 0;
  const uint8_t* s = nullptr;
  __asm__ volatile(
      "1:\n"
      INFERNO_CLEAR_RUNNING
      "add %[s], %[w], #2112\n"
      INFERNO_SUB_BLOCKS_16
      INFERNO_ADD_ALL_SCALED
      "mov %[w], %[s]\n add %[x], %[x], #336\n"
      "subs %[blocks], %[blocks], #1\n"
      "b.ne 1b\n"
      : [w] "+r"(w), [s] "+r"(s), [x] "+r"(x), [n] "+r"(n), [blocks] "+r"(blocks)
      : [out] "r"(out)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}
// clang-format on

#undef INFERNO_TOKENS
#undef INFERNO_FIRST
#undef INFERNO_NEXT
#undef INFERNO_FIRST_STEP
#undef INFERNO_NEXT_STEP
#undef INFERNO_SCALE_F32
#undef INFERNO_LAST
#undef INFERNO_LAST_STEP
#undef INFERNO_CLEAR_RUNNING
#undef INFERNO_STORE_RUNNING
#undef INFERNO_ALL_VECTORS
#undef INFERNO_SUB_BLOCKS_32
#undef INFERNO_SUB_BLOCKS_16
#undef INFERNO_ADD_SCALED
#undef INFERNO_ADD_MINIMUMS
#undef INFERNO_ADD_ALL_SCALED

}  // namespace
}  // namespace inferno
