// 8 x 8 results x 8 values of bf16: scores (queries x positions) or outputs (queries x dimensions) of attention.
//
// Generated from bfmmla_8x8_neoverse_v1.json by bench/ladder/schedules.py; do not edit.
//   core:       Arm Neoverse V1, 2.6 GHz
//   toolchain:  g++ 12.2.0, GNU as 2.40
//   found:      2026-11-15 by bench/ladder/order_search
//   speed:      a layer's attention of 512 tokens 8.24 -> 7.93 ms
//
// One iteration of a software-pipelined loop (INFERNO_PIPELINED_LOOP in assembly.h): stage0 instructions belong to the
// block that the iteration starts, stage1 instructions to the previous block, which it finishes.
#pragma once

// clang-format off
#define INFERNO_BFMMLA_8X8(stage0, stage1) \
  stage1("bfmmla v12.4s, v19.8h, v31.8h\n") \
  stage1("bfmmla v5.4s, v16.8h, v21.8h\n") \
  stage1("bfmmla v13.4s, v19.8h, v21.8h\n") \
  stage1("bfmmla v6.4s, v16.8h, v17.8h\n") \
  stage1("ldr q28, [%[b], #-48]\n") \
  stage1("bfmmla v5.4s, v27.8h, v28.8h\n") \
  stage1("bfmmla v12.4s, v23.8h, v26.8h\n") \
  stage1("ldr q29, [%[b], #-32]\n") \
  stage1("bfmmla v11.4s, v22.8h, v20.8h\n") \
  stage1("bfmmla v0.4s, v24.8h, v26.8h\n") \
  stage1("ldr q30, [%[a], #-32]\n") \
  stage1("bfmmla v14.4s, v23.8h, v29.8h\n") \
  stage1("bfmmla v1.4s, v18.8h, v21.8h\n") \
  stage0("ldr q16, [%[a], #16]\n") \
  stage0("ldr q31, [%[b], #0]\n") \
  stage0("ldr q17, [%[b], #32]\n") \
  stage1("bfmmla v4.4s, v27.8h, v26.8h\n") \
  stage1("bfmmla v2.4s, v24.8h, v29.8h\n") \
  stage0("ldr q18, [%[a], #0]\n") \
  stage1("bfmmla v6.4s, v27.8h, v29.8h\n") \
  stage1("bfmmla v13.4s, v23.8h, v28.8h\n") \
  stage0("bfmmla v2.4s, v18.8h, v17.8h\n") \
  stage0("bfmmla v4.4s, v16.8h, v31.8h\n") \
  stage1("bfmmla v3.4s, v24.8h, v25.8h\n") \
  stage1("bfmmla v15.4s, v23.8h, v25.8h\n") \
  stage1("bfmmla v7.4s, v27.8h, v25.8h\n") \
  stage0("ldr q19, [%[a], #48]\n") \
  stage1("bfmmla v1.4s, v24.8h, v28.8h\n") \
  stage0("ldr q20, [%[b], #48]\n") \
  stage0("bfmmla v15.4s, v19.8h, v20.8h\n") \
  stage1("bfmmla v10.4s, v30.8h, v29.8h\n") \
  stage1("bfmmla v8.4s, v30.8h, v26.8h\n") \
  stage0("bfmmla v3.4s, v18.8h, v20.8h\n") \
  stage1("bfmmla v9.4s, v30.8h, v28.8h\n") \
  stage0("bfmmla v7.4s, v16.8h, v20.8h\n") \
  stage0("bfmmla v0.4s, v18.8h, v31.8h\n") \
  stage0("bfmmla v14.4s, v19.8h, v17.8h\n") \
  stage0("ldr q21, [%[b], #16]\n") \
  stage0("ldr q22, [%[a], #32]\n") \
  stage0("bfmmla v10.4s, v22.8h, v17.8h\n") \
  stage1("bfmmla v11.4s, v30.8h, v25.8h\n") \
  stage0("ldr q23, [%[a], #112]\n") \
  stage0("bfmmla v9.4s, v22.8h, v21.8h\n") \
  stage0("ldr q24, [%[a], #64]\n") \
  stage0("ldr q25, [%[b], #112]\n") \
  stage0("ldr q26, [%[b], #64]\n") \
  stage0("bfmmla v8.4s, v22.8h, v31.8h\n") \
  stage0("ldr q27, [%[a], #80]\n")
// clang-format on
