// AVX-512 in plain loops, memory and floats: the kernels of its tables can then be run, slowly, by whatever runs AVX2,
// an emulator without it included. Put before the first line of a kernel file; the file is compiled for AVX2.
//
// Each function does what the instruction of its name does, lane by lane, as far as the kernels use it: rounding to
// nearest even, no exceptions, all lanes unless it has a mask.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#define __AVX512F__ 1
#define __AVX512VL__ 1
#if !defined(INFERNO_WITHOUT_VNNI)
#define __AVX512VNNI__ 1
#endif
#define INFERNO_EMULATED 1  // a vector is not in a register

namespace emulated {
namespace {

template <typename To, typename From>
inline To bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
template <typename T>
struct Lanes {
  static constexpr int kCount = 64 / sizeof(T);
  T v[kCount];
};
using I8 = Lanes<int8_t>;
using U8 = Lanes<uint8_t>;
using I16 = Lanes<int16_t>;
using U16 = Lanes<uint16_t>;
using I32 = Lanes<int32_t>;
using U32 = Lanes<uint32_t>;
using F32 = Lanes<float>;
using F64 = Lanes<double>;

// r[i] = f(i) as a vector of type V
template <typename V, typename T, typename F>
inline V make(F f) {
  Lanes<T> r;
  for (int i = 0; i < Lanes<T>::kCount; ++i) r.v[i] = static_cast<T>(f(i));
  return bits<V>(r);
}
template <typename F>
inline __m512 floats(F f) {
  return make<__m512, float>(f);
}
template <typename F>
inline __m512i ints(F f) {
  return make<__m512i, int32_t>(f);
}

inline float f(const __m512& v, int i) {
  return bits<F32>(v).v[i];
}
inline int32_t d(const __m512i& v, int i) {
  return bits<I32>(v).v[i];
}
inline uint32_t u(const __m512i& v, int i) {
  return bits<U32>(v).v[i];
}

// ---- memory
inline __m512 loadu_ps(const void* p) {
  __m512 v;
  std::memcpy(&v, p, 64);
  return v;
}
inline __m512i loadu_si(const void* p) {
  __m512i v;
  std::memcpy(&v, p, 64);
  return v;
}
inline void storeu_ps(void* p, __m512 v) {
  std::memcpy(p, &v, 64);
}
inline void storeu_si(void* p, __m512i v) {
  std::memcpy(p, &v, 64);
}
inline __m512 maskz_loadu_ps(__mmask16 m, const float* p) {
  return floats([&](int i) { return (m >> i & 1) != 0 ? p[i] : 0.0F; });
}
inline void mask_storeu_ps(float* p, __mmask16 m, __m512 v) {
  for (int i = 0; i < 16; ++i)
    if ((m >> i & 1) != 0) p[i] = f(v, i);
}

// ---- floats
inline __m512 set1_ps(float x) {
  return floats([&](int) { return x; });
}
inline __m512 add_ps(__m512 a, __m512 b) {
  return floats([&](int i) { return f(a, i) + f(b, i); });
}
inline __m512 sub_ps(__m512 a, __m512 b) {
  return floats([&](int i) { return f(a, i) - f(b, i); });
}
inline __m512 mul_ps(__m512 a, __m512 b) {
  return floats([&](int i) { return f(a, i) * f(b, i); });
}
inline __m512 div_ps(__m512 a, __m512 b) {
  return floats([&](int i) { return f(a, i) / f(b, i); });
}
inline __m512 max_ps(__m512 a, __m512 b) {
  return floats([&](int i) { return f(a, i) > f(b, i) ? f(a, i) : f(b, i); });
}
inline __m512 min_ps(__m512 a, __m512 b) {
  return floats([&](int i) { return f(a, i) < f(b, i) ? f(a, i) : f(b, i); });
}
inline __m512 mask_max_ps(__m512 s, __mmask16 m, __m512 a, __m512 b) {
  const __m512 r = max_ps(a, b);
  return floats([&](int i) { return (m >> i & 1) != 0 ? f(r, i) : f(s, i); });
}
inline __m512 mask_mov_ps(__m512 s, __mmask16 m, __m512 a) {
  return floats([&](int i) { return (m >> i & 1) != 0 ? f(a, i) : f(s, i); });
}
inline __m512 maskz_mov_ps(__mmask16 m, __m512 a) {
  return floats([&](int i) { return (m >> i & 1) != 0 ? f(a, i) : 0.0F; });
}
inline __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
  return floats([&](int i) { return std::fma(f(a, i), f(b, i), f(c, i)); });
}
inline __m512 fmsub_ps(__m512 a, __m512 b, __m512 c) {
  return floats([&](int i) { return std::fma(f(a, i), f(b, i), -f(c, i)); });
}
inline __m512 fnmadd_ps(__m512 a, __m512 b, __m512 c) {
  return floats([&](int i) { return std::fma(-f(a, i), f(b, i), f(c, i)); });
}
inline __m512 roundscale_ps(__m512 a, int) {
  return floats([&](int i) { return std::nearbyint(f(a, i)); });
}
inline __m512 scalef_ps(__m512 a, __m512 b) {
  return floats([&](int i) {
    const float n = f(b, i);
    return std::isnan(n)
               ? n
               : std::ldexp(f(a, i), static_cast<int>(std::floor(std::fmin(std::fmax(n, -1000.0F), 1000.0F))));
  });
}
inline __m512 permutex2var_ps(__m512 a, __m512i idx, __m512 b) {
  return floats([&](int i) {
    const uint32_t at = u(idx, i);
    return f((at & 16U) != 0 ? b : a, static_cast<int>(at & 15U));
  });
}
inline __m512 cvtepi32_ps(__m512i a) {
  return floats([&](int i) { return static_cast<float>(d(a, i)); });
}
inline __m512i cvtps_epi32(__m512 a) {
  return ints([&](int i) {
    const float x = std::nearbyint(f(a, i));
    return x >= -2147483648.0F && x < 2147483648.0F ? static_cast<int32_t>(x) : INT32_MIN;
  });
}
template <typename Half, typename Whole>
inline Half half_of(const Whole& a, int half) {
  Half r;
  std::memcpy(&r, reinterpret_cast<const char*>(&a) + 32 * half, 32);
  return r;
}
inline __m256 low_ps(__m512 a) {
  return half_of<__m256>(a, 0);
}
inline __m256 extract_ps(__m512 a, int half) {
  return half_of<__m256>(a, half);
}
inline __m512bh cvtne2ps_pbh(__m512 high, __m512 low) {
  const auto round = [](float x) -> uint16_t {
    const auto b = bits<uint32_t>(x);
    if ((b & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>(b >> 16 | 0x40U);
    if ((b & 0x7f800000U) == 0) return static_cast<uint16_t>(b >> 16 & 0x8000U);
    return static_cast<uint16_t>((b + 0x7fffU + (b >> 16 & 1U)) >> 16);
  };
  return make<__m512bh, uint16_t>([&](int i) { return round(i < 16 ? f(low, i) : f(high, i - 16)); });
}

// ---- doubles
inline double g(const __m512d& v, int i) {
  return bits<F64>(v).v[i];
}
inline __m512d add_pd(__m512d a, __m512d b) {
  return make<__m512d, double>([&](int i) { return g(a, i) + g(b, i); });
}
inline __m512d fmadd_pd(__m512d a, __m512d b, __m512d c) {
  return make<__m512d, double>([&](int i) { return std::fma(g(a, i), g(b, i), g(c, i)); });
}
inline __m512d cvtps_pd(__m256 a) {
  float x[8];
  std::memcpy(x, &a, 32);
  return make<__m512d, double>([&](int i) { return static_cast<double>(x[i]); });
}
inline __m256d low_pd(__m512d a) {
  return half_of<__m256d>(a, 0);
}
inline __m256d extract_pd(__m512d a, int half) {
  return half_of<__m256d>(a, half);
}

}  // namespace
}  // namespace emulated

#undef _mm512_loadu_ps
#define _mm512_loadu_ps emulated::loadu_ps
#undef _mm512_load_ps
#define _mm512_load_ps emulated::loadu_ps
#undef _mm512_loadu_si512
#define _mm512_loadu_si512 emulated::loadu_si
#undef _mm512_load_si512
#define _mm512_load_si512 emulated::loadu_si
#undef _mm512_storeu_ps
#define _mm512_storeu_ps emulated::storeu_ps
#undef _mm512_store_ps
#define _mm512_store_ps emulated::storeu_ps
#undef _mm512_storeu_si512
#define _mm512_storeu_si512 emulated::storeu_si
#undef _mm512_store_si512
#define _mm512_store_si512 emulated::storeu_si
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps emulated::maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps emulated::mask_storeu_ps
#undef _mm512_set1_ps
#define _mm512_set1_ps emulated::set1_ps
#undef _mm512_add_ps
#define _mm512_add_ps emulated::add_ps
#undef _mm512_sub_ps
#define _mm512_sub_ps emulated::sub_ps
#undef _mm512_mul_ps
#define _mm512_mul_ps emulated::mul_ps
#undef _mm512_div_ps
#define _mm512_div_ps emulated::div_ps
#undef _mm512_max_ps
#define _mm512_max_ps emulated::max_ps
#undef _mm512_min_ps
#define _mm512_min_ps emulated::min_ps
#undef _mm512_mask_max_ps
#define _mm512_mask_max_ps emulated::mask_max_ps
#undef _mm512_mask_mov_ps
#define _mm512_mask_mov_ps emulated::mask_mov_ps
#undef _mm512_maskz_mov_ps
#define _mm512_maskz_mov_ps emulated::maskz_mov_ps
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps emulated::fmadd_ps
#undef _mm512_fmsub_ps
#define _mm512_fmsub_ps emulated::fmsub_ps
#undef _mm512_fnmadd_ps
#define _mm512_fnmadd_ps emulated::fnmadd_ps
#undef _mm512_scalef_ps
#define _mm512_scalef_ps emulated::scalef_ps
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps emulated::roundscale_ps
#undef _mm512_permutex2var_ps
#define _mm512_permutex2var_ps emulated::permutex2var_ps
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps emulated::cvtepi32_ps
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 emulated::cvtps_epi32
#undef _mm512_castps512_ps256
#define _mm512_castps512_ps256 emulated::low_ps
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps emulated::extract_ps
#undef _mm512_cvtne2ps_pbh
#define _mm512_cvtne2ps_pbh emulated::cvtne2ps_pbh
#undef _mm512_add_pd
#define _mm512_add_pd emulated::add_pd
#undef _mm512_fmadd_pd
#define _mm512_fmadd_pd emulated::fmadd_pd
#undef _mm512_cvtps_pd
#define _mm512_cvtps_pd emulated::cvtps_pd
#undef _mm512_castpd512_pd256
#define _mm512_castpd512_pd256 emulated::low_pd
#undef _mm512_extractf64x4_pd
#define _mm512_extractf64x4_pd emulated::extract_pd
#define _mm512_setzero_ps() emulated::set1_ps(0)
#define _mm512_castsi512_ps(a) emulated::bits<__m512>(a)
#define _mm512_castps_si512(a) emulated::bits<__m512i>(a)
