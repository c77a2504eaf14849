// e^x for four floats within 2 units in the last place over the whole range: overflow gives infinity, underflow goes
// through the subnormals to zero, NaN stays NaN.
#pragma once

#include <arm_neon.h>

namespace inferno {
namespace {

// Always inlined: its constants then stay in registers across a loop.
__attribute__((always_inline)) inline float32x4_t exp_f32(float32x4_t x) {
  // Beyond these the result is infinity or zero in any case. (vmaxq and vminq keep NaN.)
  x = vminq_f32(vmaxq_f32(x, vdupq_n_f32(-105.0F)), vdupq_n_f32(89.0F));
  // x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts, so that r is exact to the last bit.
  const float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(0x1.715476p+0F)));
  float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1F));
  r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20F));
  // e^r = 1 + r + r^2 p(r), p fitted to the smallest largest error on the interval.
  float32x4_t p = vdupq_n_f32(1.9875691500e-4F);
  p = vfmaq_f32(vdupq_n_f32(1.3981999507e-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(8.3334519073e-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(4.1665795894e-2F), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.6666665459e-1F), p, r);
  p = vfmaq_f32(vdupq_n_f32(5.0000001201e-1F), p, r);
  p = vaddq_f32(vfmaq_f32(r, vmulq_f32(r, r), p), vdupq_n_f32(1.0F));
  // Times 2^n in two steps: 2^n alone may be subnormal or too large.
  const int32x4_t whole = vcvtq_s32_f32(n);
  const int32x4_t half = vshrq_n_s32(whole, 1);
  const int32x4_t one = vdupq_n_s32(127);
  const float32x4_t first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, one), 23));
  const float32x4_t second = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), one), 23));
  return vmulq_f32(vmulq_f32(p, first), second);
}

// The same for kCount vectors of x <= 0, as in a softmax: fewer instructions, and zero instead of a subnormal. Step by
// step for all vectors, because each step depends on the previous one of its vector.
template <int kCount>
inline void exp_nonpositive(float32x4_t (&x)[kCount]) {
  // Adding 1.5 * 2^23 rounds x / ln 2 to an integer in the low bits.
  const float32x4_t magic = vdupq_n_f32(0x1.8p23F);
  float32x4_t shifted[kCount];
  float32x4_t r[kCount];
  float32x4_t p[kCount];
  for (int i = 0; i < kCount; ++i) shifted[i] = vfmaq_f32(magic, x[i], vdupq_n_f32(0x1.715476p+0F));
  for (int i = 0; i < kCount; ++i) p[i] = vsubq_f32(shifted[i], magic);
  for (int i = 0; i < kCount; ++i) r[i] = vfmsq_f32(x[i], p[i], vdupq_n_f32(0x1.62e4p-1F));
  for (int i = 0; i < kCount; ++i) r[i] = vfmsq_f32(r[i], p[i], vdupq_n_f32(0x1.7f7d1cp-20F));
  // e^r = 1 + r (c0 + c1 r + c2 r^2 + c3 r^3 + c4 r^4), fitted to the smallest largest relative error, 1e-7. In two
  // halves rather than one chain: shorter, and fewer constants have to be copied into a sum.
  float32x4_t square[kCount];
  float32x4_t q[kCount];
  for (int i = 0; i < kCount; ++i) square[i] = vmulq_f32(r[i], r[i]);
  for (int i = 0; i < kCount; ++i) p[i] = vfmaq_f32(vdupq_n_f32(0x1.573a6cp-5F), r[i], vdupq_n_f32(0x1.0fa82p-7F));
  for (int i = 0; i < kCount; ++i) q[i] = vfmaq_f32(vdupq_n_f32(0x1.fffdc6p-2F), r[i], vdupq_n_f32(0x1.555a6cp-3F));
  for (int i = 0; i < kCount; ++i) q[i] = vfmaq_f32(q[i], p[i], square[i]);
  for (int i = 0; i < kCount; ++i) p[i] = vmulq_f32(r[i], vdupq_n_f32(0x1.fffff6p-1F));
  for (int i = 0; i < kCount; ++i) p[i] = vfmaq_f32(p[i], q[i], square[i]);
  for (int i = 0; i < kCount; ++i) p[i] = vaddq_f32(p[i], vdupq_n_f32(1.0F));
  for (int i = 0; i < kCount; ++i) {
    const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(p[i]), vshlq_n_s32(vreinterpretq_s32_f32(shifted[i]), 23));
    // Below -87 e^x is subnormal; NaN compares false and is kept.
    const uint32x4_t vanishing = vcltq_f32(x[i], vdupq_n_f32(-87.0F));
    x[i] = vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(scaled), vanishing));
  }
}

inline float exp_f32(float x) {
  return vgetq_lane_f32(exp_f32(vdupq_n_f32(x)), 0);
}

}  // namespace
}  // namespace inferno
