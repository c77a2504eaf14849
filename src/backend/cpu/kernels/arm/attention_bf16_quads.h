// The inner loop of bf16 attention for many queries, 8 x 8 scores or outputs: in assembly, whose instruction order is a
// searched schedule (docs/decisions/neon-prefill.md), and in intrinsics, with the same bits.
#pragma once

#include "backend/cpu/kernels/arm/assembly.h"
#include "backend/cpu/kernels/arm/attention_bf16_layout.h"
#include "backend/cpu/kernels/arm/schedules/bfmmla_8x8_neoverse_v1.h"

namespace inferno {
namespace {

// clang-format off
// Rows 2i and 2i + 1 of out from the four 2 x 2 results of pair i of a.
#define INFERNO_TWO_ROWS(c0, c1, c2, c3) \
  "zip1 v16.2d, v" #c0 ".2d, v" #c1 ".2d\n zip1 v17.2d, v" #c2 ".2d, v" #c3 ".2d\n" \
  "zip2 v18.2d, v" #c0 ".2d, v" #c1 ".2d\n zip2 v19.2d, v" #c2 ".2d, v" #c3 ".2d\n" \
  "stp q16, q17, [%[out]]\n add %[out], %[out], %[stride]\n" \
  "stp q18, q19, [%[out]]\n add %[out], %[out], %[stride]\n"

inline void multiply_quads_assembly(const uint16_t* a, const uint16_t* b, int64_t steps, float* out, int64_t stride) {
  float* row = out;
  int64_t blocks = steps / 2;
  __asm__ volatile(
      INFERNO_ZERO_4(0, 1, 2, 3) INFERNO_ZERO_4(4, 5, 6, 7) INFERNO_ZERO_4(8, 9, 10, 11) INFERNO_ZERO_4(12, 13, 14, 15)
      INFERNO_PIPELINED_LOOP(INFERNO_BFMMLA_8X8, "add %[a], %[a], #128\n add %[b], %[b], #128\n")
      INFERNO_TWO_ROWS(0, 1, 2, 3) INFERNO_TWO_ROWS(4, 5, 6, 7)
      INFERNO_TWO_ROWS(8, 9, 10, 11) INFERNO_TWO_ROWS(12, 13, 14, 15)
      : [a] "+r"(a), [b] "+r"(b), [n] "+r"(blocks), [out] "+r"(row)
      : [stride] "r"(stride * 4)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}
// clang-format on

#undef INFERNO_BFMMLA_8X8
#undef INFERNO_TWO_ROWS

inline void multiply_quads_intrinsics(const uint16_t* a, const uint16_t* b, int64_t steps, float* out, int64_t stride) {
  float32x4_t sums[4][4] = {};  // [pair of a][pair of b], 2 x 2 results
  for (int64_t step = 0; step < steps; ++step) {
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        sums[i][j] = bf16_step(sums[i][j], load_u16(a, 32 * step + 8 * i), load_u16(b, 32 * step + 8 * j));
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; j += 2) {
      const float64x2_t left = vreinterpretq_f64_f32(sums[i][j]);
      const float64x2_t right = vreinterpretq_f64_f32(sums[i][j + 1]);
      vst1q_f32(out + 2 * i * stride + 2 * j, vreinterpretq_f32_f64(vzip1q_f64(left, right)));
      vst1q_f32(out + (2 * i + 1) * stride + 2 * j, vreinterpretq_f32_f64(vzip2q_f64(left, right)));
    }
  }
}

// out[8][8] = a * b, both [steps][4 pairs][2][4], `steps` even; rows of out are `stride` floats apart.
inline void multiply_quads(const uint16_t* a, const uint16_t* b, int64_t steps, float* out, int64_t stride) {
  if constexpr (kUseAssembly) {
    multiply_quads_assembly(a, b, steps, out, stride);
  } else {
    multiply_quads_intrinsics(a, b, steps, out, stride);
  }
}

}  // namespace
}  // namespace inferno
