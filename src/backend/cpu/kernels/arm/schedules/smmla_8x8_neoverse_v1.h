// 8 rows x 8 tokens x 32 columns of Q8_0 by row pairs, straight from the weights; two tiles of two token pairs.
//
// Generated from smmla_8x8_neoverse_v1.json by bench/ladder/schedules.py; do not edit.
//   core:       Arm Neoverse V1, 2.6 GHz
//   toolchain:  g++ 12.2.0, GNU as 2.40
//   found:      2026-11-15 by bench/ladder/order_search
//   speed:      38.3 cycles per block (by hand 40.5)
//
// One iteration of a software-pipelined loop (INFERNO_PIPELINED_LOOP in assembly.h): stage0 instructions belong to the
// block that the iteration starts, stage1 instructions to the previous block, which it finishes.
#pragma once

// clang-format off
#define INFERNO_SMMLA_8X8(stage0, stage1) \
  stage1("fmul v27.4s, v7.4s, v31.4s\n") \
  stage0("movi v28.2d, #0\n") \
  stage1("fmla v18.4s, v1.4s, v27.4s\n") \
  stage0("ldr q29, [%[y], #0]\n") \
  stage1("ldr q30, [%[y], #-16]\n") \
  stage0("ldr q31, [%[x], #64]\n") \
  stage0("ldr q1, [%[x], #16]\n") \
  stage1("fmla v20.4s, v0.4s, v25.4s\n") \
  stage0("ldr q0, [%[w], #16]\n") \
  stage1("fmla v16.4s, v2.4s, v24.4s\n") \
  stage0("ldr q2, [%[w], #32]\n") \
  stage1("scvtf v4.4s, v4.4s\n") \
  stage1("scvtf v5.4s, v5.4s\n") \
  stage1("fmul v24.4s, v7.4s, v30.4s\n") \
  stage0("movi v25.2d, #0\n") \
  stage1("fmul v7.4s, v7.4s, v26.4s\n") \
  stage1("fmul v6.4s, v6.4s, v30.4s\n") \
  stage0("ldr q26, [%[y], #48]\n") \
  stage0("movi v27.2d, #0\n") \
  stage0("smmla v28.4s, v0.16b, v29.16b\n") \
  stage0("smmla v25.4s, v2.16b, v29.16b\n") \
  stage0("ldr d29, [%[w], #0]\n") \
  stage1("scvtf v3.4s, v3.4s\n") \
  stage0("ldr q30, [%[x], #0]\n") \
  stage1("fmla v19.4s, v3.4s, v24.4s\n") \
  stage1("fmla v17.4s, v5.4s, v7.4s\n") \
  stage0("ldr q3, [%[y], #16]\n") \
  stage0("movi v5.2d, #0\n") \
  stage0("smmla v5.4s, v2.16b, v3.16b\n") \
  stage0("smmla v27.4s, v0.16b, v3.16b\n") \
  stage1("fmla v23.4s, v4.4s, v6.4s\n") \
  stage0("fcvtl v4.4s, v29.4h\n") \
  stage0("ldr q24, [%[w], #48]\n") \
  stage0("movi v7.2d, #0\n") \
  stage0("movi v6.2d, #0\n") \
  stage0("smmla v6.4s, v2.16b, v1.16b\n") \
  stage0("movi v29.2d, #0\n") \
  stage0("smmla v29.4s, v0.16b, v30.16b\n") \
  stage0("smmla v7.4s, v0.16b, v1.16b\n") \
  stage0("ldr q1, [%[w], #64]\n") \
  stage0("ldr q0, [%[x], #48]\n") \
  stage0("movi v3.2d, #0\n") \
  stage0("smmla v3.4s, v2.16b, v30.16b\n") \
  stage0("smmla v6.4s, v1.16b, v0.16b\n") \
  stage0("ldr q2, [%[y], #32]\n") \
  stage0("smmla v25.4s, v1.16b, v2.16b\n") \
  stage0("smmla v28.4s, v24.16b, v2.16b\n") \
  stage0("ldr q30, [%[x], #32]\n") \
  stage0("smmla v29.4s, v24.16b, v30.16b\n") \
  stage0("smmla v27.4s, v24.16b, v26.16b\n") \
  stage0("ldr q2, [%[y], #80]\n") \
  stage0("smmla v7.4s, v24.16b, v0.16b\n") \
  stage0("smmla v3.4s, v1.16b, v30.16b\n") \
  stage0("ldr q24, [%[w], #96]\n") \
  stage0("ldr q0, [%[x], #80]\n") \
  stage0("ldr q30, [%[w], #80]\n") \
  stage0("smmla v5.4s, v1.16b, v26.16b\n") \
  stage0("smmla v5.4s, v24.16b, v2.16b\n") \
  stage0("smmla v29.4s, v30.16b, v31.16b\n") \
  stage0("ldr q26, [%[y], #64]\n") \
  stage0("smmla v28.4s, v30.16b, v26.16b\n") \
  stage0("smmla v25.4s, v24.16b, v26.16b\n") \
  stage0("smmla v7.4s, v30.16b, v0.16b\n") \
  stage0("smmla v6.4s, v24.16b, v0.16b\n") \
  stage0("smmla v27.4s, v30.16b, v2.16b\n") \
  stage0("ldr q1, [%[x], #112]\n") \
  stage0("zip2 v2.4s, v4.4s, v4.4s\n") \
  stage0("ldr q0, [%[w], #128]\n") \
  stage0("zip1 v4.4s, v4.4s, v4.4s\n") \
  stage0("ldr q30, [%[y], #112]\n") \
  stage0("ldr q26, [%[x], #96]\n") \
  stage0("smmla v3.4s, v24.16b, v31.16b\n") \
  stage0("ldr q31, [%[w], #112]\n") \
  stage0("smmla v27.4s, v31.16b, v30.16b\n") \
  stage0("ldr q24, [%[y], #96]\n") \
  stage0("smmla v6.4s, v0.16b, v1.16b\n") \
  stage0("smmla v25.4s, v0.16b, v24.16b\n") \
  stage0("smmla v28.4s, v31.16b, v24.16b\n") \
  stage0("scvtf v25.4s, v25.4s\n") \
  stage0("smmla v29.4s, v31.16b, v26.16b\n") \
  stage0("smmla v5.4s, v0.16b, v30.16b\n") \
  stage0("ldr q30, [%[y], #128]\n") \
  stage0("smmla v3.4s, v0.16b, v26.16b\n") \
  stage0("scvtf v28.4s, v28.4s\n") \
  stage0("scvtf v6.4s, v6.4s\n") \
  stage0("ldr q26, [%[x], #144]\n") \
  stage0("scvtf v29.4s, v29.4s\n") \
  stage0("fmul v0.4s, v4.4s, v30.4s\n") \
  stage0("fmla v10.4s, v28.4s, v0.4s\n") \
  stage0("scvtf v27.4s, v27.4s\n") \
  stage0("ldr q28, [%[y], #0]\n") \
  stage0("smmla v7.4s, v31.16b, v1.16b\n") \
  stage0("movi v0.2d, #0\n") \
  stage0("fmul v1.4s, v2.4s, v26.4s\n") \
  stage0("fmla v13.4s, v6.4s, v1.4s\n") \
  stage0("movi v1.2d, #0\n") \
  stage0("ldr q6, [%[x], #128]\n") \
  stage0("fmul v31.4s, v4.4s, v6.4s\n") \
  stage0("fmla v8.4s, v29.4s, v31.4s\n") \
  stage0("ldr q29, [%[y], #144]\n") \
  stage0("ldr q24, [%[w], #160]\n") \
  stage0("fmul v30.4s, v2.4s, v30.4s\n") \
  stage0("fmla v14.4s, v25.4s, v30.4s\n") \
  stage0("fmul v25.4s, v2.4s, v29.4s\n") \
  stage0("fmul v31.4s, v4.4s, v29.4s\n") \
  stage0("ldr q29, [%[x], #16]\n") \
  stage0("scvtf v5.4s, v5.4s\n") \
  stage0("scvtf v3.4s, v3.4s\n") \
  stage0("fmul v2.4s, v2.4s, v6.4s\n") \
  stage0("fmla v11.4s, v27.4s, v31.4s\n") \
  stage0("fmla v12.4s, v3.4s, v2.4s\n") \
  stage0("movi v27.2d, #0\n") \
  stage0("ldr q6, [%[x], #0]\n") \
  stage0("movi v2.2d, #0\n") \
  stage0("fmul v26.4s, v4.4s, v26.4s\n") \
  stage0("movi v3.2d, #0\n") \
  stage0("smmla v27.4s, v24.16b, v28.16b\n") \
  stage0("ldr q30, [%[w], #144]\n") \
  stage0("smmla v1.4s, v30.16b, v28.16b\n") \
  stage0("fmla v15.4s, v5.4s, v25.4s\n") \
  stage0("ldr q5, [%[y], #16]\n") \
  stage0("movi v28.2d, #0\n") \
  stage0("smmla v28.4s, v24.16b, v29.16b\n") \
  stage0("movi v4.2d, #0\n") \
  stage0("ldr d25, [%[w], #8]\n") \
  stage0("ldr q31, [%[w], #224]\n") \
  stage0("smmla v0.4s, v24.16b, v6.16b\n") \
  stage0("smmla v4.4s, v24.16b, v5.16b\n") \
  stage0("ldr q24, [%[w], #176]\n") \
  stage0("scvtf v7.4s, v7.4s\n") \
  stage0("fmla v9.4s, v7.4s, v26.4s\n") \
  stage0("smmla v3.4s, v30.16b, v5.16b\n") \
  stage0("movi v5.2d, #0\n") \
  stage0("ldr q7, [%[y], #32]\n") \
  stage0("ldr q26, [%[w], #192]\n") \
  stage0("smmla v5.4s, v30.16b, v29.16b\n") \
  stage0("smmla v1.4s, v24.16b, v7.16b\n") \
  stage0("ldr q29, [%[x], #48]\n") \
  stage0("smmla v2.4s, v30.16b, v6.16b\n") \
  stage0("fcvtl v30.4s, v25.4h\n") \
  stage0("smmla v28.4s, v26.16b, v29.16b\n") \
  stage0("smmla v27.4s, v26.16b, v7.16b\n") \
  stage0("ldr q6, [%[x], #32]\n") \
  stage0("ldr q25, [%[y], #48]\n") \
  stage0("smmla v4.4s, v26.16b, v25.16b\n") \
  stage0("ldr q7, [%[w], #208]\n") \
  stage0("smmla v3.4s, v24.16b, v25.16b\n") \
  stage0("ldr q25, [%[y], #80]\n") \
  stage0("smmla v5.4s, v24.16b, v29.16b\n") \
  stage0("smmla v2.4s, v24.16b, v6.16b\n") \
  stage0("ldr q24, [%[x], #80]\n") \
  stage0("smmla v0.4s, v26.16b, v6.16b\n") \
  stage0("smmla v3.4s, v7.16b, v25.16b\n") \
  stage0("ldr q26, [%[y], #64]\n") \
  stage0("smmla v1.4s, v7.16b, v26.16b\n") \
  stage0("smmla v27.4s, v31.16b, v26.16b\n") \
  stage0("ldr q29, [%[x], #64]\n") \
  stage0("smmla v2.4s, v7.16b, v29.16b\n") \
  stage0("smmla v28.4s, v31.16b, v24.16b\n") \
  stage0("smmla v0.4s, v31.16b, v29.16b\n") \
  stage0("ldr q6, [%[x], #96]\n") \
  stage0("ldr q29, [%[w], #240]\n") \
  stage0("smmla v2.4s, v29.16b, v6.16b\n") \
  stage0("ldr q26, [%[w], #256]\n") \
  stage0("smmla v0.4s, v26.16b, v6.16b\n") \
  stage0("zip2 v6.4s, v30.4s, v30.4s\n") \
  stage0("smmla v4.4s, v31.16b, v25.16b\n") \
  stage0("scvtf v0.4s, v0.4s\n") \
  stage0("smmla v5.4s, v7.16b, v24.16b\n") \
  stage0("ldr q31, [%[y], #96]\n") \
  stage0("smmla v27.4s, v26.16b, v31.16b\n") \
  stage0("ldr q7, [%[x], #112]\n") \
  stage0("smmla v28.4s, v26.16b, v7.16b\n") \
  stage0("smmla v1.4s, v29.16b, v31.16b\n") \
  stage0("ldr q31, [%[y], #128]\n") \
  stage0("smmla v5.4s, v29.16b, v7.16b\n") \
  stage0("scvtf v28.4s, v28.4s\n") \
  stage0("scvtf v1.4s, v1.4s\n") \
  stage0("zip1 v7.4s, v30.4s, v30.4s\n") \
  stage0("ldr q30, [%[y], #112]\n") \
  stage0("smmla v4.4s, v26.16b, v30.16b\n") \
  stage0("scvtf v27.4s, v27.4s\n") \
  stage0("ldr q25, [%[x], #128]\n") \
  stage0("fmul v24.4s, v7.4s, v25.4s\n") \
  stage0("fmul v25.4s, v6.4s, v25.4s\n") \
  stage0("ldr q26, [%[x], #144]\n") \
  stage0("smmla v3.4s, v29.16b, v30.16b\n") \
  stage0("fmul v29.4s, v6.4s, v26.4s\n") \
  stage0("fmla v21.4s, v28.4s, v29.4s\n") \
  stage0("scvtf v2.4s, v2.4s\n") \
  stage0("fmul v28.4s, v6.4s, v31.4s\n") \
  stage0("fmla v22.4s, v27.4s, v28.4s\n")
// clang-format on
