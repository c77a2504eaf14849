// 8-bit dot products of four rows at once, with the dot-product instructions where the file is compiled with them and
// with widening multiplies where not. All names are private to the including file (kernel_table.h says why).
#pragma once

#include <arm_neon.h>

namespace inferno {
namespace {

// A zero from a movi of its own. It is free (eliminated at register renaming), while gcc would keep one zero in a
// register and copy it, and a copy occupies a vector pipe.
inline int32x4_t zero_s32() {
  int32x4_t zero;
  __asm__ volatile("movi %0.2d, #0" : "=w"(zero));
  return zero;
}

#if defined(__ARM_FEATURE_DOTPROD)

using RowSums = int32x4_t;  // one per row

inline RowSums zero_sums() {
  return zero_s32();
}
// Row r: sum of w[4r + i] * x[4 * kLane + i], i < 4.
template <int kLane>
inline void add_dot(RowSums& sums, int8x16_t w, int8x16_t x) {
  sums = vdotq_laneq_s32(sums, w, x, kLane);
}
inline int32x4_t finish(const RowSums& sums) {
  return sums;
}

#else

struct RowSums {
  int32x4_t low;   // rows 0 and 1, two parts each
  int32x4_t high;  // rows 2 and 3
};

inline RowSums zero_sums() {
  return {zero_s32(), zero_s32()};
}
template <int kLane>
inline void add_dot(RowSums& sums, int8x16_t w, int8x16_t x) {
  const int8x16_t same = vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), kLane));
  sums.low = vpadalq_s16(sums.low, vmull_s8(vget_low_s8(w), vget_low_s8(same)));
  sums.high = vpadalq_s16(sums.high, vmull_high_s8(w, same));
}
inline int32x4_t finish(const RowSums& sums) {
  return vpaddq_s32(sums.low, sums.high);
}

#endif

// Four vectors of a tile (16 columns) times 16 activations.
inline void add_dot_16(RowSums& sums, const int8x16_t* w, int8x16_t x) {
  add_dot<0>(sums, w[0], x);
  add_dot<1>(sums, w[1], x);
  add_dot<2>(sums, w[2], x);
  add_dot<3>(sums, w[3], x);
}

}  // namespace
}  // namespace inferno
