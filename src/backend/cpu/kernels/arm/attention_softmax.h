// The softmax of bf16 attention: from scores to bf16 weights, two queries at a time, as the matrix instructions read
// them.
#pragma once

#include "backend/cpu/kernels/arm/attention_common.h"

namespace inferno {
namespace {

// 2^x for x <= 0, within 3e-6 and not below 2^-126: the weights are rounded to bf16.
template <int kCount>
inline void exp2_nonpositive(float32x4_t (&x)[kCount]) {
  const float32x4_t magic = vdupq_n_f32(0x1.8p23F);  // adding it rounds to an integer, in the low bits
  float32x4_t shifted[kCount];
  float32x4_t r[kCount];
  float32x4_t p[kCount];
  float32x4_t square[kCount];
  for (int i = 0; i < kCount; ++i) x[i] = vmaxq_f32(x[i], vdupq_n_f32(-126.0F));
  for (int i = 0; i < kCount; ++i) shifted[i] = vaddq_f32(x[i], magic);
  for (int i = 0; i < kCount; ++i) r[i] = vsubq_f32(shifted[i], magic);
  for (int i = 0; i < kCount; ++i) r[i] = vsubq_f32(x[i], r[i]);
  // 2^r = 1 + r (c0 + c1 r + (c2 + c3 r) r^2), fitted to the smallest largest relative error on [-0.5, 0.5].
  for (int i = 0; i < kCount; ++i) square[i] = vmulq_f32(r[i], r[i]);
  for (int i = 0; i < kCount; ++i) p[i] = vfmaq_f32(vdupq_n_f32(0x1.c9fc46p-5F), r[i], vdupq_n_f32(0x1.3a02ccp-7F));
  for (int i = 0; i < kCount; ++i) x[i] = vfmaq_f32(vdupq_n_f32(0x1.62e12cp-1F), r[i], vdupq_n_f32(0x1.ec0378p-3F));
  for (int i = 0; i < kCount; ++i) x[i] = vfmaq_f32(x[i], p[i], square[i]);
  for (int i = 0; i < kCount; ++i) x[i] = vfmaq_f32(vdupq_n_f32(1.0F), x[i], r[i]);
  for (int i = 0; i < kCount; ++i) {
    const int32x4_t power = vshlq_n_s32(vreinterpretq_s32_f32(shifted[i]), 23);
    x[i] = vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x[i]), power));
  }
}

// The largest of scores[0, visible) times scale, which is positive; -infinity of none.
inline float largest_score(const float* scores, int64_t visible, float scale) {
  const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
  float32x4_t top[4] = {lowest, lowest, lowest, lowest};
  int64_t p = 0;
  for (; p + 16 <= visible; p += 16) {
    for (int i = 0; i < 4; ++i) top[i] = vmaxq_f32(top[i], vld1q_f32(scores + p + 4 * i));
  }
  for (; p < visible; p += 4) top[0] = vmaxq_f32(top[0], visible_scores(scores, p, visible, 1.0F));
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(top[0], top[1]), vmaxq_f32(top[2], top[3]))) * scale;
}

// The weights of a pair of queries: weight = exp(score * scale - m), zero past what each may see. The sum l runs over
// four lanes in ascending order, whatever is visible.
inline void pair_softmax(const float* scores, const int32_t (&visible)[2], int64_t padded, float scale,
                         uint16_t* weights, Softmax (&out)[2]) {
  constexpr float kLog2E = 0x1.715476p+0F;
  const float32x4_t factor = vdupq_n_f32(scale * kLog2E);
  const float* row[2] = {scores, scores + kAttentionSpan};
  float32x4_t base[2];  // -m in powers of two
  float32x4_t sum[2] = {};
  for (int i = 0; i < 2; ++i) {
    out[i].m = largest_score(row[i], visible[i], scale);
    base[i] = vdupq_n_f32(visible[i] == 0 ? 0.0F : -out[i].m * kLog2E);
  }
  const auto store = [weights](int64_t p, float32x4_t a, float32x4_t b) {
    const bfloat16x8_t both = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(a), b);
    vst1q_u16(weights + 8 * p, vreinterpretq_u16_bf16(both));
  };
  const int64_t both = visible[0] < visible[1] ? visible[0] : visible[1];
  int64_t p = 0;
  for (; p + 8 <= both; p += 8) {
    float32x4_t e[4];  // [4 positions][query]
    for (int i = 0; i < 4; ++i) e[i] = vfmaq_f32(base[i % 2], vld1q_f32(row[i % 2] + p + i / 2 * 4), factor);
    exp2_nonpositive(e);
    for (int i = 0; i < 4; ++i) sum[i % 2] = vaddq_f32(sum[i % 2], e[i]);
    store(p, e[0], e[1]);
    store(p + 4, e[2], e[3]);
  }
  for (; p < padded; p += 4) {
    float32x4_t e[2];
    for (int i = 0; i < 2; ++i) e[i] = vfmaq_f32(base[i], vld1q_f32(row[i] + p), factor);
    exp2_nonpositive(e);
    for (int i = 0; i < 2; ++i) {
      const int32_t lanes[4] = {0, 1, 2, 3};
      const uint32x4_t seen = vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(visible[i] - static_cast<int32_t>(p)));
      e[i] = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(e[i]), seen));
      sum[i] = vaddq_f32(sum[i], e[i]);
    }
    store(p, e[0], e[1]);
  }
  for (int i = 0; i < 2; ++i) out[i].l = vaddvq_f32(sum[i]);
}

}  // namespace
}  // namespace inferno
