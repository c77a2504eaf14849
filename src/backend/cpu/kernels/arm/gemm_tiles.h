// The inner loop of the 8-bit matrix product with one scale per 32 columns, 8 rows x 6 tokens, in assembly: it needs
// all 32 registers, and its speed depends on the order of the instructions, which a compiler changes
// (docs/decisions/neon-prefill.md). The order is a searched schedule; gemm.h has the same in intrinsics.
//
// Registers: v0-v11 the integer sums, row pair i and token pair j in v(3i + j), each a 2 x 2 result; v12-v23 the
// running sums in the same order; v24-v31 as the schedule assigns them.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/kernels/arm/assembly.h"
#include "backend/cpu/kernels/arm/schedules/smmla_8x6_neoverse_v1.h"

namespace inferno {
namespace {

// clang-format off
// Blocks of 32 columns with one float scale d. Of w: 256 bytes of levels; 4 vectors of doubled d. Of x: as
// gemm_activations.h says.
#define INFERNO_BLOCKS_32 \
  INFERNO_ZERO_4(12, 13, 14, 15) INFERNO_ZERO_4(16, 17, 18, 19) INFERNO_ZERO_4(20, 21, 22, 23) \
  INFERNO_PIPELINED_LOOP(INFERNO_SMMLA_8X6, "add %[w], %[w], #320\n add %[x], %[x], #240\n")

// out[12]: the sums.
inline void multiply_blocks_32(const uint8_t* w, const int8_t* x, int64_t blocks, float32x4_t* out) {
  __asm__ volatile(
      INFERNO_BLOCKS_32
      "stp q12, q13, [%[out]]\n stp q14, q15, [%[out], #32]\n stp q16, q17, [%[out], #64]\n"
      "stp q18, q19, [%[out], #96]\n stp q20, q21, [%[out], #128]\n stp q22, q23, [%[out], #160]\n"
      : [w] "+r"(w), [x] "+r"(x), [n] "+r"(blocks)
      : [out] "r"(out)
      : INFERNO_ALL_VECTORS, "cc", "memory");
}

// Where the outputs of a tile belong: 8 rows side by side, 6 tokens `stride` bytes apart.
struct TilePlace {
  float* first;
  int64_t stride;
};

// The same into the output, added to what it holds or not.
#define INFERNO_STORE(uzp, low0, low1, high0, high1, add) \
  uzp " v0.4s, v" #low0 ".4s, v" #low1 ".4s\n " uzp " v1.4s, v" #high0 ".4s, v" #high1 ".4s\n" add \
  "stp q0, q1, [%[out]]\n add %[out], %[out], %[stride]\n"
#define INFERNO_STORE_TILE(add) \
  INFERNO_STORE("uzp1", 12, 15, 18, 21, add) INFERNO_STORE("uzp2", 12, 15, 18, 21, add) \
  INFERNO_STORE("uzp1", 13, 16, 19, 22, add) INFERNO_STORE("uzp2", 13, 16, 19, 22, add) \
  INFERNO_STORE("uzp1", 14, 17, 20, 23, add) INFERNO_STORE("uzp2", 14, 17, 20, 23, add)
#define INFERNO_ACCUMULATE "ldp q2, q3, [%[out]]\n fadd v0.4s, v2.4s, v0.4s\n fadd v1.4s, v3.4s, v1.4s\n"

template <bool kAccumulate>
inline void multiply_blocks_32_into(const uint8_t* w, const int8_t* x, int64_t blocks, const TilePlace& place) {
  float* out = place.first;
  if constexpr (kAccumulate) {
    __asm__ volatile(INFERNO_BLOCKS_32 INFERNO_STORE_TILE(INFERNO_ACCUMULATE)
        : [w] "+r"(w), [x] "+r"(x), [n] "+r"(blocks), [out] "+r"(out)
        : [stride] "r"(place.stride)
        : INFERNO_ALL_VECTORS, "cc", "memory");
  } else {
    __asm__ volatile(INFERNO_BLOCKS_32 INFERNO_STORE_TILE()
        : [w] "+r"(w), [x] "+r"(x), [n] "+r"(blocks), [out] "+r"(out)
        : [stride] "r"(place.stride)
        : INFERNO_ALL_VECTORS, "cc", "memory");
  }
}
// clang-format on

#undef INFERNO_SMMLA_8X6
#undef INFERNO_BLOCKS_32
#undef INFERNO_STORE
#undef INFERNO_STORE_TILE
#undef INFERNO_ACCUMULATE

}  // namespace
}  // namespace inferno
