// Eight or sixteen floats at a time: parts of rows, conversions, sums, and e^x.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {
namespace {

// The first n lanes, n < 8.
inline __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
// Up to eight floats; missing lanes are zero.
inline __m256 load_some(const float* x, int64_t n) {
  return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_lanes(n));
}
inline void store_some(float* out, __m256 v, int64_t n) {
  if (n >= 8) {
    _mm256_storeu_ps(out, v);
  } else {
    _mm256_maskstore_ps(out, first_lanes(n), v);
  }
}
inline __m128i load_some_u16(const uint16_t* x, int64_t n) {
  if (n >= 8) return _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(x)));
  uint16_t some[8] = {};
  for (int64_t i = 0; i < n; ++i) some[i] = x[i];
  return _mm_loadu_si128(static_cast<const __m128i*>(static_cast<const void*>(some)));
}
inline void store_some_u16(uint16_t* out, __m128i v, int64_t n) {
  if (n >= 8) {
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(out)), v);
    return;
  }
  uint16_t some[8];
  _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(some)), v);
  for (int64_t i = 0; i < n; ++i) out[i] = some[i];
}

// The widest vector the file is compiled for. Where lanes are outputs that have nothing to do with each other the bits
// are the same whatever the width.
#if defined(__AVX512F__)
using Wide = __m512;
inline constexpr int64_t kWide = 16;
inline __mmask16 first_wide_lanes(int64_t n) {
  return n >= kWide ? __mmask16{0xffff} : static_cast<__mmask16>((1 << n) - 1);
}
inline Wide wide_load_some(const float* x, int64_t n) {
  return _mm512_maskz_loadu_ps(first_wide_lanes(n), x);
}
inline void wide_store_some(float* out, Wide v, int64_t n) {
  _mm512_mask_storeu_ps(out, first_wide_lanes(n), v);
}
// The first n (0 or more) lanes of v, then those of rest.
inline Wide wide_first(Wide v, int64_t n, Wide rest) {
  return _mm512_mask_mov_ps(rest, first_wide_lanes(n), v);
}
inline Wide wide_set(float x) {
  return _mm512_set1_ps(x);
}
inline Wide wide_fma(Wide a, Wide b, Wide sum) {
  return _mm512_fmadd_ps(a, b, sum);
}
// b where either is NaN.
inline Wide wide_max(Wide a, Wide b) {
  return _mm512_max_ps(a, b);
}
inline Wide wide_min(Wide a, Wide b) {
  return _mm512_min_ps(a, b);
}
inline Wide wide_round(Wide x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// x times 2^n, n whole numbers from -152 to 129.
inline Wide wide_times_power(Wide x, Wide n) {
  return _mm512_scalef_ps(x, n);
}
// Half as wide: f of both halves.
template <typename F>
inline __m256 fold_wide(Wide v, F f) {
  return f(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
#else
using Wide = __m256;
inline constexpr int64_t kWide = 8;
inline Wide wide_load_some(const float* x, int64_t n) {
  return load_some(x, n);
}
inline void wide_store_some(float* out, Wide v, int64_t n) {
  store_some(out, v, n);
}
inline Wide wide_first(Wide v, int64_t n, Wide rest) {
  return _mm256_blendv_ps(rest, v, _mm256_castsi256_ps(first_lanes(n)));
}
inline Wide wide_set(float x) {
  return _mm256_set1_ps(x);
}
inline Wide wide_fma(Wide a, Wide b, Wide sum) {
  return _mm256_fmadd_ps(a, b, sum);
}
inline Wide wide_max(Wide a, Wide b) {
  return _mm256_max_ps(a, b);
}
inline Wide wide_min(Wide a, Wide b) {
  return _mm256_min_ps(a, b);
}
inline Wide wide_round(Wide x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// In two steps: 2^n alone may be subnormal or too large.
inline Wide wide_times_power(Wide x, Wide n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i one = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, one), 23);
  const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), one), 23);
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
template <typename F>
inline __m256 fold_wide(Wide v, F /*f*/) {
  return v;
}
#endif
inline Wide wide_load(const float* x) {
  Wide v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
inline void wide_store(float* out, Wide v) {
  __builtin_memcpy(out, &v, sizeof v);
}
inline Wide wide_add(Wide a, Wide b) {
  return a + b;
}
inline Wide wide_mul(Wide a, Wide b) {
  return a * b;
}
inline Wide wide_div(Wide a, Wide b) {
  return a / b;
}

// Lanes added in a fixed order.
inline float sum_lanes(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float largest_lane(__m256 v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

inline __m256 bf16_to_f32(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
// Round to nearest even, NaN stays NaN; the result as f32.
inline __m256 round_to_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  const __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
  return _mm256_and_ps(chosen, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}
#if defined(__AVX512F__)
// kWide values.
inline Wide wide_from_bf16(const uint16_t* x) {
  const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(static_cast<const void*>(x)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline Wide wide_round_to_bf16(Wide x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  const __m512i chosen = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_castsi512_ps(_mm512_and_si512(chosen, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}
#else
inline Wide wide_from_bf16(const uint16_t* x) {
  return bf16_to_f32(load_some_u16(x, kWide));
}
inline Wide wide_round_to_bf16(Wide x) {
  return round_to_bf16(x);
}
#endif

inline float wide_sum(Wide v) {
  return sum_lanes(fold_wide(v, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); }));
}
inline float wide_largest(Wide v) {
  return largest_lane(fold_wide(v, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); }));
}

// e^x within 2 units in the last place over the whole range: overflow gives infinity, underflow goes through the
// subnormals to zero, NaN stays NaN.
inline Wide exp_f32(Wide x) {
  // Beyond these the result is infinity or zero in any case.
  x = wide_min(wide_set(89.0F), wide_max(wide_set(-105.0F), x));
  // x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts, so that r is exact to the last bit.
  const Wide n = wide_round(wide_mul(x, wide_set(0x1.715476p+0F)));
  Wide r = wide_fma(n, wide_set(-0x1.62e4p-1F), x);
  r = wide_fma(n, wide_set(-0x1.7f7d1cp-20F), r);
  // e^r = 1 + r + r^2 p(r), p fitted to the smallest largest error on the interval.
  Wide p = wide_set(1.9875691500e-4F);
  p = wide_fma(p, r, wide_set(1.3981999507e-3F));
  p = wide_fma(p, r, wide_set(8.3334519073e-3F));
  p = wide_fma(p, r, wide_set(4.1665795894e-2F));
  p = wide_fma(p, r, wide_set(1.6666665459e-1F));
  p = wide_fma(p, r, wide_set(5.0000001201e-1F));
  p = wide_add(wide_fma(wide_mul(r, r), p, r), wide_set(1.0F));
  return wide_times_power(p, n);
}
inline float exp_f32(float x) {
  return _mm256_cvtss_f32(fold_wide(exp_f32(wide_set(x)), [](__m256 low, __m256 /*high*/) { return low; }));
}

}  // namespace
}  // namespace inferno
