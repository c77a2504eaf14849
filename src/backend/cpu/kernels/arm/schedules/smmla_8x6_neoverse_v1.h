// 8 rows x 6 tokens x 32 columns with a scale per block: a panel (gemm.h) times a tile (gemm_activations.h).
//
// Generated from smmla_8x6_neoverse_v1.json by bench/ladder/schedules.py; do not edit.
//   core:       Arm Neoverse V1, 2.6 GHz
//   toolchain:  g++ 12.2.0, GNU as 2.40
//   found:      2026-11-15 by bench/ladder/order_search
//   speed:      25.1 cycles per block with data in L1 (by hand 27.4, intrinsics of g++ 12 30.6, of clang 19 28.6)
//
// One iteration of a software-pipelined loop (INFERNO_PIPELINED_LOOP in assembly.h): stage0 instructions belong to the
// block that the iteration starts, stage1 instructions to the previous block, which it finishes.
#pragma once

// clang-format off
#define INFERNO_SMMLA_8X6(stage0, stage1) \
  stage1("scvtf v4.4s, v4.4s\n") \
  stage1("fmul v29.4s, v26.4s, v27.4s\n") \
  stage1("fmla v20.4s, v8.4s, v29.4s\n") \
  stage1("scvtf v5.4s, v5.4s\n") \
  stage1("ldr q30, [%[x], #-32]\n") \
  stage1("fmul v31.4s, v28.4s, v24.4s\n") \
  stage1("ldr q29, [%[w], #-16]\n") \
  stage1("fmla v12.4s, v0.4s, v31.4s\n") \
  stage1("fmul v31.4s, v28.4s, v27.4s\n") \
  stage1("fmla v14.4s, v2.4s, v31.4s\n") \
  stage0("movi v0.2d, #0\n") \
  stage1("fmul v31.4s, v26.4s, v24.4s\n") \
  stage1("fmla v18.4s, v6.4s, v31.4s\n") \
  stage0("movi v6.2d, #0\n") \
  stage1("fmul v31.4s, v25.4s, v24.4s\n") \
  stage1("fmla v15.4s, v3.4s, v31.4s\n") \
  stage0("movi v3.2d, #0\n") \
  stage1("fmul v31.4s, v29.4s, v30.4s\n") \
  stage1("fmla v22.4s, v10.4s, v31.4s\n") \
  stage0("movi v8.2d, #0\n") \
  stage1("fmul v26.4s, v26.4s, v30.4s\n") \
  stage1("fmul v31.4s, v25.4s, v27.4s\n") \
  stage1("fmla v17.4s, v5.4s, v31.4s\n") \
  stage1("scvtf v7.4s, v7.4s\n") \
  stage0("movi v5.2d, #0\n") \
  stage1("scvtf v11.4s, v11.4s\n") \
  stage1("fmla v19.4s, v7.4s, v26.4s\n") \
  stage0("ldr q26, [%[w], #16]\n") \
  stage0("ldr q31, [%[x], #0]\n") \
  stage0("movi v10.2d, #0\n") \
  stage1("fmul v27.4s, v29.4s, v27.4s\n") \
  stage1("fmul v25.4s, v25.4s, v30.4s\n") \
  stage1("fmla v23.4s, v11.4s, v27.4s\n") \
  stage1("fmla v16.4s, v4.4s, v25.4s\n") \
  stage0("smmla v3.4s, v26.16b, v31.16b\n") \
  stage1("fmul v27.4s, v29.4s, v24.4s\n") \
  stage0("ldr q29, [%[x], #32]\n") \
  stage0("ldr q24, [%[w], #0]\n") \
  stage0("movi v11.2d, #0\n") \
  stage1("fmul v25.4s, v28.4s, v30.4s\n") \
  stage1("scvtf v1.4s, v1.4s\n") \
  stage0("ldr q28, [%[x], #16]\n") \
  stage0("movi v4.2d, #0\n") \
  stage0("smmla v5.4s, v26.16b, v29.16b\n") \
  stage0("ldr q30, [%[w], #48]\n") \
  stage0("movi v2.2d, #0\n") \
  stage1("scvtf v9.4s, v9.4s\n") \
  stage1("fmla v21.4s, v9.4s, v27.4s\n") \
  stage0("ldr q27, [%[w], #32]\n") \
  stage0("smmla v10.4s, v30.16b, v28.16b\n") \
  stage0("smmla v4.4s, v26.16b, v28.16b\n") \
  stage0("ldr q26, [%[w], #96]\n") \
  stage0("smmla v0.4s, v24.16b, v31.16b\n") \
  stage0("movi v9.2d, #0\n") \
  stage0("smmla v9.4s, v30.16b, v31.16b\n") \
  stage1("fmla v13.4s, v1.4s, v25.4s\n") \
  stage0("smmla v8.4s, v27.16b, v29.16b\n") \
  stage0("movi v7.2d, #0\n") \
  stage0("ldr q25, [%[w], #80]\n") \
  stage0("movi v1.2d, #0\n") \
  stage0("smmla v1.4s, v24.16b, v28.16b\n") \
  stage0("smmla v2.4s, v24.16b, v29.16b\n") \
  stage0("ldr q24, [%[w], #112]\n") \
  stage0("smmla v7.4s, v27.16b, v28.16b\n") \
  stage0("ldr q28, [%[x], #80]\n") \
  stage0("smmla v6.4s, v27.16b, v31.16b\n") \
  stage0("smmla v5.4s, v25.16b, v28.16b\n") \
  stage0("ldr q31, [%[x], #48]\n") \
  stage0("smmla v6.4s, v26.16b, v31.16b\n") \
  stage0("smmla v11.4s, v30.16b, v29.16b\n") \
  stage0("ldr q27, [%[w], #64]\n") \
  stage0("smmla v0.4s, v27.16b, v31.16b\n") \
  stage0("smmla v8.4s, v26.16b, v28.16b\n") \
  stage0("smmla v3.4s, v25.16b, v31.16b\n") \
  stage0("ldr q29, [%[x], #64]\n") \
  stage0("smmla v10.4s, v24.16b, v29.16b\n") \
  stage0("ldr q30, [%[w], #160]\n") \
  stage0("smmla v9.4s, v24.16b, v31.16b\n") \
  stage0("smmla v7.4s, v26.16b, v29.16b\n") \
  stage0("ldr q31, [%[w], #144]\n") \
  stage0("smmla v4.4s, v25.16b, v29.16b\n") \
  stage0("smmla v1.4s, v27.16b, v29.16b\n") \
  stage0("ldr q25, [%[x], #128]\n") \
  stage0("ldr q26, [%[x], #96]\n") \
  stage0("smmla v6.4s, v30.16b, v26.16b\n") \
  stage0("smmla v11.4s, v24.16b, v28.16b\n") \
  stage0("smmla v3.4s, v31.16b, v26.16b\n") \
  stage0("smmla v2.4s, v27.16b, v28.16b\n") \
  stage0("ldr q27, [%[w], #128]\n") \
  stage0("ldr q28, [%[w], #176]\n") \
  stage0("smmla v9.4s, v28.16b, v26.16b\n") \
  stage0("smmla v5.4s, v31.16b, v25.16b\n") \
  stage0("ldr q29, [%[x], #112]\n") \
  stage0("smmla v8.4s, v30.16b, v25.16b\n") \
  stage0("smmla v4.4s, v31.16b, v29.16b\n") \
  stage0("ldr q31, [%[x], #144]\n") \
  stage0("smmla v7.4s, v30.16b, v29.16b\n") \
  stage0("smmla v2.4s, v27.16b, v25.16b\n") \
  stage0("smmla v10.4s, v28.16b, v29.16b\n") \
  stage0("ldr q24, [%[w], #208]\n") \
  stage0("smmla v11.4s, v28.16b, v25.16b\n") \
  stage0("ldr q28, [%[w], #224]\n") \
  stage0("smmla v3.4s, v24.16b, v31.16b\n") \
  stage0("scvtf v3.4s, v3.4s\n") \
  stage0("ldr q30, [%[x], #176]\n") \
  stage0("smmla v1.4s, v27.16b, v29.16b\n") \
  stage0("smmla v6.4s, v28.16b, v31.16b\n") \
  stage0("ldr q25, [%[w], #192]\n") \
  stage0("smmla v0.4s, v27.16b, v26.16b\n") \
  stage0("smmla v5.4s, v24.16b, v30.16b\n") \
  stage0("smmla v2.4s, v25.16b, v30.16b\n") \
  stage0("smmla v8.4s, v28.16b, v30.16b\n") \
  stage0("ldr q29, [%[w], #240]\n") \
  stage0("smmla v0.4s, v25.16b, v31.16b\n") \
  stage0("scvtf v0.4s, v0.4s\n") \
  stage0("smmla v9.4s, v29.16b, v31.16b\n") \
  stage0("ldr q31, [%[x], #160]\n") \
  stage0("smmla v4.4s, v24.16b, v31.16b\n") \
  stage0("smmla v1.4s, v25.16b, v31.16b\n") \
  stage0("ldr q24, [%[x], #192]\n") \
  stage0("ldr q25, [%[w], #272]\n") \
  stage0("scvtf v6.4s, v6.4s\n") \
  stage0("ldr q26, [%[w], #288]\n") \
  stage0("ldr q27, [%[x], #224]\n") \
  stage0("smmla v7.4s, v28.16b, v31.16b\n") \
  stage0("scvtf v8.4s, v8.4s\n") \
  stage0("scvtf v2.4s, v2.4s\n") \
  stage0("smmla v11.4s, v29.16b, v30.16b\n") \
  stage0("smmla v10.4s, v29.16b, v31.16b\n") \
  stage0("scvtf v10.4s, v10.4s\n") \
  stage0("ldr q28, [%[w], #256]\n")
// clang-format on
