// Vector ops. An element is computed the same way wherever it is in a row, so results do not depend on how work is
// split.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/kernels/arm/exp.h"
#include "backend/cpu/kernels/arm/plain_linear.h"

namespace inferno {
namespace {

// out[i] = f(a[i], b[i])
template <typename F>
inline void map(const float* a, const float* b, float* out, int64_t n, F f) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const float32x4_t low = f(vld1q_f32(a + i), vld1q_f32(b + i));
    const float32x4_t high = f(vld1q_f32(a + i + 4), vld1q_f32(b + i + 4));
    vst1q_f32(out + i, low);
    vst1q_f32(out + i + 4, high);
  }
  for (; i < n; i += 4) store_some(out + i, f(load_some(a + i, n - i), load_some(b + i, n - i)), n - i);
}

// x / (1 + e^-x), from e = e^-|x|, which cannot overflow: x times (1 or e) / (1 + e). Step by step for all vectors,
// because each step depends on the previous one of its vector. Below -88.4 it is zero.
template <int kCount>
__attribute__((always_inline)) inline void silu_f32(float32x4_t (&x)[kCount]) {
  const float32x4_t one = vdupq_n_f32(1.0F);
  // Adding 1.5 * 2^23 rounds -|x| / ln 2 to an integer n in the low bits.
  const float32x4_t magic = vdupq_n_f32(0x1.8p23F);
  float32x4_t shifted[kCount];
  float32x4_t r[kCount];
  float32x4_t p[kCount];
  float32x4_t q[kCount];
  float32x4_t square[kCount];
  for (int i = 0; i < kCount; ++i) r[i] = vminq_f32(vabsq_f32(x[i]), vdupq_n_f32(88.9F));
  for (int i = 0; i < kCount; ++i) shifted[i] = vfmsq_f32(magic, r[i], vdupq_n_f32(0x1.715476p+0F));
  for (int i = 0; i < kCount; ++i) p[i] = vsubq_f32(shifted[i], magic);
  // r = |x| + n ln 2, so that e = 2^n e^-r; ln 2 in two parts.
  for (int i = 0; i < kCount; ++i) r[i] = vfmaq_f32(r[i], p[i], vdupq_n_f32(0x1.62e4p-1F));
  for (int i = 0; i < kCount; ++i) r[i] = vfmaq_f32(r[i], p[i], vdupq_n_f32(0x1.7f7d1cp-20F));
  // Half the polynomial of exp_nonpositive in -r: 2 * 2^n is never subnormal, and zero for the least n, -128.
  for (int i = 0; i < kCount; ++i) square[i] = vmulq_f32(r[i], r[i]);
  for (int i = 0; i < kCount; ++i) p[i] = vfmsq_f32(vdupq_n_f32(0x1.573a6cp-6F), r[i], vdupq_n_f32(0x1.0fa82p-8F));
  for (int i = 0; i < kCount; ++i) q[i] = vfmsq_f32(vdupq_n_f32(0x1.fffdc6p-3F), r[i], vdupq_n_f32(0x1.555a6cp-4F));
  for (int i = 0; i < kCount; ++i) q[i] = vfmaq_f32(q[i], p[i], square[i]);
  for (int i = 0; i < kCount; ++i) p[i] = vmulq_f32(r[i], vdupq_n_f32(-0x1.fffff6p-2F));
  for (int i = 0; i < kCount; ++i) p[i] = vfmaq_f32(p[i], q[i], square[i]);
  for (int i = 0; i < kCount; ++i) p[i] = vaddq_f32(p[i], vdupq_n_f32(0.5F));
  for (int i = 0; i < kCount; ++i) {
    const int32x4_t power =
        vaddq_s32(vshlq_n_s32(vreinterpretq_s32_f32(shifted[i]), 23), vreinterpretq_s32_f32(vdupq_n_f32(2.0F)));
    const float32x4_t e = vmulq_f32(p[i], vreinterpretq_f32_s32(power));
    const float32x4_t product = vmulq_f32(x[i], vbslq_f32(vcltzq_f32(x[i]), e, one));
    x[i] = vdivq_f32(product, vaddq_f32(e, one));
  }
}

inline void add(const float* a, const float* b, float* out, int64_t n) noexcept {
  map(a, b, out, n, [](float32x4_t x, float32x4_t y) { return vaddq_f32(x, y); });
}
inline void hadamard(const float* a, const float* b, float* out, int64_t n) noexcept {
  map(a, b, out, n, [](float32x4_t x, float32x4_t y) { return vmulq_f32(x, y); });
}
// out[i] = silu(gate[i]) * up[i], or silu(gate[i]).
template <bool kGated>
inline void map_silu(const float* gate, const float* up, float* out, int64_t n) {
  constexpr int kVectors = 4;
  int64_t i = 0;
  for (; i + 4 * kVectors <= n; i += 4 * kVectors) {
    float32x4_t x[kVectors];
    for (int j = 0; j < kVectors; ++j) x[j] = vld1q_f32(gate + i + 4 * j);
    silu_f32(x);
    for (int j = 0; j < kVectors; ++j) {
      vst1q_f32(out + i + 4 * j, kGated ? vmulq_f32(x[j], vld1q_f32(up + i + 4 * j)) : x[j]);
    }
  }
  for (; i < n; i += 4) {
    float32x4_t x[1] = {load_some(gate + i, n - i)};
    silu_f32(x);
    store_some(out + i, kGated ? vmulq_f32(x[0], load_some(up + i, n - i)) : x[0], n - i);
  }
}
inline void silu(const float* x, float* out, int64_t n) noexcept {
  map_silu<false>(x, nullptr, out, n);
}
inline void swiglu(const float* gate, const float* up, float* out, int64_t n) noexcept {
  map_silu<true>(gate, up, out, n);
}
// x / (1 + e^-2u), u = sqrt(2 / pi) * (x + 0.044715 x^3): silu of 2u, times x / 2u, which is 1 / (2u / x).
inline float32x4_t gelu_tanh_f32(float32x4_t x) {
  const float32x4_t square = vmulq_f32(x, x);
  const float32x4_t slope =
      vmulq_n_f32(vfmaq_n_f32(vdupq_n_f32(1.0F), square, 0.044715F), 1.5957691216F);  // 2u / x, at least 1.59
  float32x4_t wide[1] = {vmulq_f32(x, slope)};
  silu_f32(wide);
  return vdivq_f32(wide[0], slope);
}
inline void gelu_tanh(const float* x, float* out, int64_t n) noexcept {
  map(x, x, out, n, [](float32x4_t v, float32x4_t) { return gelu_tanh_f32(v); });
}
inline void gelu_tanh_gated(const float* x, const float* factor, float* out, int64_t n) noexcept {
  map(x, factor, out, n, [](float32x4_t v, float32x4_t f) { return vmulq_f32(gelu_tanh_f32(v), f); });
}
inline void scale(const float* x, float s, float* out, int64_t n) noexcept {
  map(x, x, out, n, [s](float32x4_t v, float32x4_t) { return vmulq_n_f32(v, s); });
}
inline void saxpy(float s, const float* x, float* y, int64_t n) noexcept {
  map(x, y, y, n, [s](float32x4_t v, float32x4_t sum) { return vfmaq_n_f32(sum, v, s); });
}

inline float dot(const float* a, const float* b, int64_t n) noexcept {
  float32x4_t s[4] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 4; ++j) s[j] = vfmaq_f32(s[j], vld1q_f32(a + i + 4 * j), vld1q_f32(b + i + 4 * j));
  }
  for (; i < n; i += 4) s[0] = vfmaq_f32(s[0], load_some(a + i, n - i), load_some(b + i, n - i));
  return vaddvq_f32(vaddq_f32(vaddq_f32(s[0], s[1]), vaddq_f32(s[2], s[3])));
}

// In double, as in the scalar table: the norms of every layer depend on this sum.
inline float sum_squares(const float* x, int64_t n) noexcept {
  float64x2_t s[4] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int j = 0; j < 2; ++j) {
      const float32x4_t v = vld1q_f32(x + i + 4 * j);
      const float64x2_t low = vcvt_f64_f32(vget_low_f32(v));
      const float64x2_t high = vcvt_high_f64_f32(v);
      s[2 * j] = vfmaq_f64(s[2 * j], low, low);
      s[2 * j + 1] = vfmaq_f64(s[2 * j + 1], high, high);
    }
  }
  for (; i < n; i += 4) {
    const float32x4_t v = load_some(x + i, n - i);
    const float64x2_t low = vcvt_f64_f32(vget_low_f32(v));
    const float64x2_t high = vcvt_high_f64_f32(v);
    s[0] = vfmaq_f64(s[0], low, low);
    s[1] = vfmaq_f64(s[1], high, high);
  }
  return static_cast<float>(vaddvq_f64(vaddq_f64(vaddq_f64(s[0], s[1]), vaddq_f64(s[2], s[3]))));
}

inline void rms_norm(const float* x, const float* weight, float eps, float* out, int64_t n) noexcept {
  const float factor = 1.0F / __builtin_sqrtf(sum_squares(x, n) / static_cast<float>(n) + eps);
  map(x, weight, out, n, [factor](float32x4_t v, float32x4_t w) { return vmulq_f32(vmulq_n_f32(v, factor), w); });
}

inline float largest_of(const float* x, int64_t n) {
  float32x4_t top = vdupq_n_f32(-__builtin_inff());
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) top = vmaxq_f32(top, vld1q_f32(x + i));
  float largest = vmaxvq_f32(top);
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

inline void softmax(const float* x, float* out, int64_t n) noexcept {
  const float largest = largest_of(x, n);
  const float32x4_t most = vdupq_n_f32(largest);
  map(x, x, out, n, [most](float32x4_t v, float32x4_t) { return exp_f32(vsubq_f32(v, most)); });
  float32x4_t sums = vdupq_n_f32(0);
  for (int64_t i = 0; i < n; i += 4) sums = vaddq_f32(sums, load_some(out + i, n - i));
  const float32x4_t total = vdupq_n_f32(vaddvq_f32(sums));
  map(out, out, out, n, [total](float32x4_t v, float32x4_t) { return vdivq_f32(v, total); });
}

// a and b rotated by the angles whose cosines and sines are interleaved in cos_sin.
inline void rotate(float32x4_t& a, float32x4_t& b, const float* cos_sin) {
  const float32x4x2_t c = vld2q_f32(cos_sin);
  const float32x4_t x = a;
  a = vsubq_f32(vmulq_f32(x, c.val[0]), vmulq_f32(b, c.val[1]));
  b = vaddq_f32(vmulq_f32(x, c.val[1]), vmulq_f32(b, c.val[0]));
}
inline void rotate_one(float& a, float& b, const float* cos_sin) {
  const float x = a;
  a = x * cos_sin[0] - b * cos_sin[1];
  b = x * cos_sin[1] + b * cos_sin[0];
}

inline void rope_half_split(float* head, const float* cos_sin, int64_t pairs) noexcept {
  int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    float32x4_t a = vld1q_f32(head + i);
    float32x4_t b = vld1q_f32(head + i + pairs);
    rotate(a, b, cos_sin + 2 * i);
    vst1q_f32(head + i, a);
    vst1q_f32(head + i + pairs, b);
  }
  for (; i < pairs; ++i) rotate_one(head[i], head[i + pairs], cos_sin + 2 * i);
}
inline void rope_interleaved(float* head, const float* cos_sin, int64_t pairs) noexcept {
  int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    float32x4x2_t v = vld2q_f32(head + 2 * i);
    rotate(v.val[0], v.val[1], cos_sin + 2 * i);
    vst2q_f32(head + 2 * i, v);
  }
  for (; i < pairs; ++i) rotate_one(head[2 * i], head[2 * i + 1], cos_sin + 2 * i);
}

// kRows rows x 16 columns of the product; each output one chain in ascending n.
template <int kRows>
inline void matmul_block(const float* a, const float* b, float* out, int64_t n, int64_t p, int64_t columns) {
  float32x4_t s[kRows][4] = {};
  for (int64_t i = 0; i < n; ++i) {
    float32x4_t row[4];
    for (int j = 0; j < 4; ++j) row[j] = load_some(b + i * p + 4 * j, columns - 4 * j);
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < 4; ++j) s[r][j] = vfmaq_n_f32(s[r][j], row[j], a[r * n + i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < 4; ++j) store_some(out + r * p + 4 * j, s[r][j], columns - 4 * j);
  }
}

inline void matmul(const float* a, const float* b, float* out, int64_t n, int64_t p, int64_t row_begin,
                   int64_t row_end) noexcept {
  for (int64_t c = 0; c < p; c += 16) {
    const int64_t columns = p - c < 16 ? p - c : 16;
    int64_t r = row_begin;
    for (; r + 4 <= row_end; r += 4) matmul_block<4>(a + r * n, b + c, out + r * p + c, n, p, columns);
    for (; r < row_end; ++r) matmul_block<1>(a + r * n, b + c, out + r * p + c, n, p, columns);
  }
}

// ---- rows of a cache

inline void store_bf16(const float* x, void* row, int64_t n) noexcept {
  auto* to = static_cast<uint16_t*>(row);
  for (int64_t i = 0; i < n; i += 4) {
    const uint32x4_t bits = vreinterpretq_u32_f32(round_to_bf16(load_some(x + i, n - i)));
    const uint16x4_t halves = vshrn_n_u32(bits, 16);
    if (n - i >= 4) {
      vst1_u16(to + i, halves);
    } else {
      uint16_t some[4];
      vst1_u16(some, halves);
      for (int64_t j = i; j < n; ++j) to[j] = some[j - i];
    }
  }
}
inline void store_f16(const float* x, void* row, int64_t n) noexcept {
  auto* to = static_cast<uint16_t*>(row);
  for (int64_t i = 0; i < n; i += 4) {
    const uint16x4_t halves = vreinterpret_u16_f16(vcvt_f16_f32(load_some(x + i, n - i)));
    if (n - i >= 4) {
      vst1_u16(to + i, halves);
    } else {
      uint16_t some[4];
      vst1_u16(some, halves);
      for (int64_t j = i; j < n; ++j) to[j] = some[j - i];
    }
  }
}

inline uint16x4_t load_some_u16(const uint16_t* x, int64_t n) {
  if (n >= 4) return vld1_u16(x);
  uint16_t some[4] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = x[i];
  return vld1_u16(some);
}
inline void load_bf16_row(const void* row, float* x, int64_t n) noexcept {
  const auto* from = static_cast<const uint16_t*>(row);
  for (int64_t i = 0; i < n; i += 4) {
    store_some(x + i, vreinterpretq_f32_u32(vshll_n_u16(load_some_u16(from + i, n - i), 16)), n - i);
  }
}
inline void load_f16_row(const void* row, float* x, int64_t n) noexcept {
  const auto* from = static_cast<const uint16_t*>(row);
  for (int64_t i = 0; i < n; i += 4) {
    store_some(x + i, vcvt_f32_f16(vreinterpret_f16_u16(load_some_u16(from + i, n - i))), n - i);
  }
}
// Blocks of 34 bytes: an f16 scale, 32 levels.
inline void load_q8_0_row(const void* row, float* x, int64_t n) noexcept {
  const auto* from = static_cast<const uint8_t*>(row);
  for (int64_t b = 0; b < n / 32; ++b, from += 34) {
    const uint16_t half = static_cast<uint16_t>(from[0] | (from[1] << 8));
    const float d = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half))), 0);
    for (int i = 0; i < 32; i += 8) {
      const int16x8_t levels = vmovl_s8(vreinterpret_s8_u8(vld1_u8(from + 2 + i)));
      vst1q_f32(x + b * 32 + i, vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(levels))), d));
      vst1q_f32(x + b * 32 + i + 4, vmulq_n_f32(vcvtq_f32_s32(vmovl_high_s16(levels)), d));
    }
  }
}

inline void merge_span(float* m, float* l, float* o, float span_m, float span_l, const float* span_o,
                       int64_t head_dim) noexcept {
  const float top = *m > span_m ? *m : span_m;
  if (top == -__builtin_inff()) return;  // neither side has seen a position
  const float keep = exp_f32(*m - top);
  const float take = exp_f32(span_m - top);
  *m = top;
  *l = *l * keep + span_l * take;
  map(o, span_o, o, head_dim, [keep, take](float32x4_t old, float32x4_t span) {
    return vaddq_f32(vmulq_n_f32(old, keep), vmulq_n_f32(span, take));
  });
}

inline void fill_vector_ops(KernelTable& table) {
  table.add = add;
  table.hadamard = hadamard;
  table.silu = silu;
  table.swiglu = swiglu;
  table.activate[static_cast<int>(KernelActivation::silu)] = silu;
  table.gated[static_cast<int>(KernelActivation::silu)] = swiglu;
  table.activate[static_cast<int>(KernelActivation::gelu_tanh)] = gelu_tanh;
  table.gated[static_cast<int>(KernelActivation::gelu_tanh)] = gelu_tanh_gated;
  table.scale = scale;
  table.saxpy = saxpy;
  table.dot = dot;
  table.sum_squares = sum_squares;
  table.rms_norm = rms_norm;
  table.softmax = softmax;
  table.rope_half_split = rope_half_split;
  table.rope_interleaved = rope_interleaved;
  table.matmul = matmul;
  table.merge_span = merge_span;
  const auto at = [](DType dtype) { return static_cast<int>(dtype); };
  table.store_row[at(DType::bf16)] = store_bf16;
  table.store_row[at(DType::f16)] = store_f16;
  table.load_row[at(DType::bf16)] = load_bf16_row;
  table.load_row[at(DType::f16)] = load_f16_row;
  table.load_row[at(DType::q8_0)] = load_q8_0_row;
}

}  // namespace
}  // namespace inferno
