// e^x for four floats within 2 units in the last place over the whole range: overflow gives infinity, underflow goes
// through the subnormals to zero, NaN stays NaN.
#pragma once

#include <arm_neon.h>

namespace inferno {
namespace {

inline float32x4_t exp_f32(float32x4_t x) {
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

// The same for x <= 0, as in a softmax: fewer instructions, and zero instead of a subnormal.
inline float32x4_t exp_nonpositive(float32x4_t x) {
  // Below this e^x is subnormal. NaN compares false here, so it is kept by asking the other way round.
  const uint32x4_t vanishing = vcltq_f32(x, vdupq_n_f32(-87.0F));
  // Adding 1.5 * 2^23 rounds x / ln 2 to an integer, which stands in the low bits.
  const float32x4_t magic = vdupq_n_f32(0x1.8p23F);
  const float32x4_t shifted = vfmaq_f32(magic, x, vdupq_n_f32(0x1.715476p+0F));
  const float32x4_t n = vsubq_f32(shifted, magic);
  float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0x1.62e4p-1F));
  r = vfmsq_f32(r, n, vdupq_n_f32(0x1.7f7d1cp-20F));
  float32x4_t p = vdupq_n_f32(1.9875691500e-4F);
  p = vfmaq_f32(vdupq_n_f32(1.3981999507e-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(8.3334519073e-3F), p, r);
  p = vfmaq_f32(vdupq_n_f32(4.1665795894e-2F), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.6666665459e-1F), p, r);
  p = vfmaq_f32(vdupq_n_f32(5.0000001201e-1F), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.0F), vfmaq_f32(vdupq_n_f32(1.0F), p, r), r);
  const int32x4_t scaled = vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23));
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_s32(scaled), vanishing));
}

inline float exp_f32(float x) {
  return vgetq_lane_f32(exp_f32(vdupq_n_f32(x)), 0);
}

}  // namespace
}  // namespace inferno
