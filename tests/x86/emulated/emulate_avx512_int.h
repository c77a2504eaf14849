// The integers of AVX-512 in plain loops, as emulate_avx512.h has the floats.
#pragma once

#include <algorithm>

#include "emulate_avx512.h"

namespace emulated {
namespace {

inline __m512i set1_epi32(int32_t x) {
  return ints([&](int) { return x; });
}
inline __m512i set1_epi8(int8_t x) {
  return make<__m512i, int8_t>([&](int) { return x; });
}
template <typename... T>
inline __m512i setr_epi32(T... x) {
  const int32_t v[16] = {x...};
  return loadu_si(v);
}
template <typename... T>
inline __m512i setr_epi64(T... x) {
  const int64_t v[8] = {x...};
  return loadu_si(v);
}
// Bit 4a + 2b + c of imm for each three bits of a, b and c.
inline __m512i ternarylogic(__m512i a, __m512i b, __m512i c, unsigned imm) {
  return make<__m512i, uint32_t>([&](int i) {
    uint32_t r = 0;
    for (unsigned k = 0; k < 8; ++k) {
      if ((imm >> k & 1U) == 0) continue;
      r |= ((k & 4U) != 0 ? u(a, i) : ~u(a, i)) & ((k & 2U) != 0 ? u(b, i) : ~u(b, i)) &
           ((k & 1U) != 0 ? u(c, i) : ~u(c, i));
    }
    return r;
  });
}
inline __m512i add_epi32(__m512i a, __m512i b) {
  return make<__m512i, uint32_t>([&](int i) { return u(a, i) + u(b, i); });
}
inline __m512i sub_epi32(__m512i a, __m512i b) {
  return make<__m512i, uint32_t>([&](int i) { return u(a, i) - u(b, i); });
}
inline __m512i mullo_epi32(__m512i a, __m512i b) {
  return make<__m512i, uint32_t>([&](int i) { return u(a, i) * u(b, i); });
}
inline __m512i slli_epi32(__m512i a, unsigned n) {
  return make<__m512i, uint32_t>([&](int i) { return u(a, i) << n; });
}
inline __m512i slli_epi16(__m512i a, unsigned n) {
  const auto x = bits<U16>(a);
  return make<__m512i, uint16_t>([&](int i) { return x.v[i] << n; });
}
inline __m512i srli_epi16(__m512i a, unsigned n) {
  const auto x = bits<U16>(a);
  return make<__m512i, uint16_t>([&](int i) { return x.v[i] >> n; });
}
inline __m512i max_epu32(__m512i a, __m512i b) {
  return make<__m512i, uint32_t>([&](int i) { return u(a, i) > u(b, i) ? u(a, i) : u(b, i); });
}
inline __m512i and_si(__m512i a, __m512i b) {
  return make<__m512i, uint32_t>([&](int i) { return u(a, i) & u(b, i); });
}
inline __m512i xor_si(__m512i a, __m512i b) {
  return make<__m512i, uint32_t>([&](int i) { return u(a, i) ^ u(b, i); });
}
inline __mmask16 cmpgt_epi32_mask(__m512i a, __m512i b) {
  unsigned m = 0;
  for (int i = 0; i < 16; ++i) m |= static_cast<unsigned>(d(a, i) > d(b, i)) << i;
  return static_cast<__mmask16>(m);
}
inline __mmask16 mask_cmpge_epu32_mask(__mmask16 k, __m512i a, __m512i b) {
  unsigned m = 0;
  for (int i = 0; i < 16; ++i) m |= static_cast<unsigned>(u(a, i) >= u(b, i)) << i;
  return static_cast<__mmask16>(m & k);
}
// The low bits of each lane.
template <typename Narrow, typename Vector>
inline Vector narrow(__m512i a) {
  Narrow r[16];
  for (int i = 0; i < 16; ++i) r[i] = static_cast<Narrow>(u(a, i));
  Vector v;
  std::memcpy(&v, r, sizeof v);
  return v;
}
inline __m128i cvtepi32_epi8(__m512i a) {
  return narrow<int8_t, __m128i>(a);
}
inline __m256i cvtepi32_epi16(__m512i a) {
  return narrow<int16_t, __m256i>(a);
}
// Each lane widened with its sign.
template <typename Narrow, typename Vector>
inline __m512i widen(Vector a) {
  Narrow x[16];
  std::memcpy(x, &a, sizeof x);
  return ints([&](int i) { return x[i]; });
}
inline __m512i cvtepi8_epi32(__m128i a) {
  return widen<int8_t>(a);
}
inline __m512i cvtepi16_epi32(__m256i a) {
  return widen<int16_t>(a);
}
inline __m512i broadcast_i64x4(__m256i a) {
  char r[64];
  std::memcpy(r, &a, 32);
  std::memcpy(r + 32, &a, 32);
  return loadu_si(r);
}
inline __m512i broadcast_i32x4(__m128i a) {
  char r[64];
  for (int i = 0; i < 4; ++i) std::memcpy(r + 16 * i, &a, 16);
  return loadu_si(r);
}
inline __m256i extract_i64x4(__m512i a, int half) {
  __m256i r;
  std::memcpy(&r, reinterpret_cast<const char*>(&a) + 32 * half, 32);
  return r;
}
inline __m256i low_si(__m512i a) {
  return extract_i64x4(a, 0);
}

// Elements of a and b alternating, from the low or high half of each 128 bits.
template <typename T>
inline __m512i unpack(__m512i a, __m512i b, bool high) {
  const auto x = bits<Lanes<T>>(a);
  const auto y = bits<Lanes<T>>(b);
  constexpr int kLane = 16 / sizeof(T);
  return make<__m512i, T>([&](int i) {
    const int at = i / kLane * kLane + i % kLane / 2 + (high ? kLane / 2 : 0);
    return i % 2 == 0 ? x.v[at] : y.v[at];
  });
}
inline __m512i shuffle_i32x4(__m512i a, __m512i b, int imm) {
  char x[128];
  std::memcpy(x, &a, 64);
  std::memcpy(x + 64, &b, 64);
  char r[64];
  for (int i = 0; i < 4; ++i) std::memcpy(r + 16 * i, x + (i < 2 ? 0 : 64) + 16 * (imm >> 2 * i & 3), 16);
  return loadu_si(r);
}
inline __m512i permutexvar_epi16(__m512i idx, __m512i a) {
  const auto x = bits<U16>(a);
  const auto at = bits<U16>(idx);
  return make<__m512i, uint16_t>([&](int i) { return x.v[at.v[i] & 31U]; });
}
inline __m512i permutexvar_epi32(__m512i idx, __m512i a) {
  return make<__m512i, uint32_t>([&](int i) { return u(a, static_cast<int>(u(idx, i) & 15U)); });
}
inline __m512i permutex2var_epi64(__m512i a, __m512i idx, __m512i b) {
  const auto x = bits<Lanes<uint64_t>>(a);
  const auto y = bits<Lanes<uint64_t>>(b);
  const auto at = bits<Lanes<uint64_t>>(idx);
  return make<__m512i, uint64_t>([&](int i) { return (at.v[i] & 8U) != 0 ? y.v[at.v[i] & 7U] : x.v[at.v[i] & 7U]; });
}
inline __m512i shuffle_epi32(__m512i a, int imm) {
  return ints([&](int i) { return d(a, i / 4 * 4 + (imm >> 2 * (i % 4) & 3)); });
}
inline __m512i shuffle_epi8(__m512i a, __m512i b) {
  const auto x = bits<U8>(a);
  const auto at = bits<U8>(b);
  return make<__m512i, uint8_t>([&](int i) { return (at.v[i] & 0x80U) != 0 ? 0 : x.v[i / 16 * 16 + (at.v[i] & 15)]; });
}
inline __m512i dpbusd(__m512i s, __m512i a, __m512i b) {
  const auto x = bits<U8>(a);
  const auto y = bits<I8>(b);
  return ints([&](int i) {
    int32_t sum = d(s, i);
    for (int j = 4 * i; j < 4 * i + 4; ++j) sum += int32_t{x.v[j]} * y.v[j];
    return sum;
  });
}
inline __m256i dpbusd(__m256i s, __m256i a, __m256i b) {
  const auto wide = [](const __m256i& v) {
    __m512i r = {};
    std::memcpy(&r, &v, 32);
    return r;
  };
  return low_si(dpbusd(wide(s), wide(a), wide(b)));
}
inline __m512i madd_epi16(__m512i a, __m512i b) {
  const auto x = bits<I16>(a);
  const auto y = bits<I16>(b);
  return ints([&](int i) { return int32_t{x.v[2 * i]} * y.v[2 * i] + int32_t{x.v[2 * i + 1]} * y.v[2 * i + 1]; });
}
inline __m512i maddubs_epi16(__m512i a, __m512i b) {
  const auto x = bits<U8>(a);
  const auto y = bits<I8>(b);
  return make<__m512i, int16_t>([&](int i) {
    const int32_t sum = int32_t{x.v[2 * i]} * y.v[2 * i] + int32_t{x.v[2 * i + 1]} * y.v[2 * i + 1];
    return std::min(std::max(sum, -32768), 32767);
  });
}
inline __m512i add_epi16(__m512i a, __m512i b) {
  const auto x = bits<I16>(a);
  const auto y = bits<I16>(b);
  return make<__m512i, int16_t>([&](int i) { return x.v[i] + y.v[i]; });
}
inline __m512i dpwssd(__m512i s, __m512i a, __m512i b) {
  const auto x = bits<I16>(a);
  const auto y = bits<I16>(b);
  return ints(
      [&](int i) { return d(s, i) + int32_t{x.v[2 * i]} * y.v[2 * i] + int32_t{x.v[2 * i + 1]} * y.v[2 * i + 1]; });
}

}  // namespace
}  // namespace emulated

#undef _mm512_set1_epi32
#define _mm512_set1_epi32 emulated::set1_epi32
#undef _mm512_set1_epi8
#define _mm512_set1_epi8 emulated::set1_epi8
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 emulated::setr_epi32
#undef _mm512_setr_epi64
#define _mm512_setr_epi64 emulated::setr_epi64
#undef _mm512_ternarylogic_epi64
#define _mm512_ternarylogic_epi64 emulated::ternarylogic
#undef _mm512_add_epi32
#define _mm512_add_epi32 emulated::add_epi32
#undef _mm512_sub_epi32
#define _mm512_sub_epi32 emulated::sub_epi32
#undef _mm512_mullo_epi32
#define _mm512_mullo_epi32 emulated::mullo_epi32
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 emulated::slli_epi32
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 emulated::slli_epi16
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 emulated::srli_epi16
#undef _mm512_max_epu32
#define _mm512_max_epu32 emulated::max_epu32
#undef _mm512_and_si512
#define _mm512_and_si512 emulated::and_si
#undef _mm512_xor_si512
#define _mm512_xor_si512 emulated::xor_si
#undef _mm512_cmpgt_epi32_mask
#define _mm512_cmpgt_epi32_mask emulated::cmpgt_epi32_mask
#undef _mm512_mask_cmpge_epu32_mask
#define _mm512_mask_cmpge_epu32_mask emulated::mask_cmpge_epu32_mask
#undef _mm512_cvtepi32_epi8
#define _mm512_cvtepi32_epi8 emulated::cvtepi32_epi8
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16 emulated::cvtepi32_epi16
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 emulated::cvtepi8_epi32
#undef _mm512_cvtepi16_epi32
#define _mm512_cvtepi16_epi32 emulated::cvtepi16_epi32
#undef _mm512_broadcast_i64x4
#define _mm512_broadcast_i64x4 emulated::broadcast_i64x4
#undef _mm512_broadcast_i32x4
#define _mm512_broadcast_i32x4 emulated::broadcast_i32x4
#undef _mm512_castsi512_si256
#define _mm512_castsi512_si256 emulated::low_si
#undef _mm512_shuffle_i32x4
#define _mm512_shuffle_i32x4 emulated::shuffle_i32x4
#undef _mm512_permutexvar_epi16
#define _mm512_permutexvar_epi16 emulated::permutexvar_epi16
#undef _mm512_permutexvar_epi32
#define _mm512_permutexvar_epi32 emulated::permutexvar_epi32
#undef _mm512_permutex2var_epi64
#define _mm512_permutex2var_epi64 emulated::permutex2var_epi64
#undef _mm512_shuffle_epi32
#define _mm512_shuffle_epi32 emulated::shuffle_epi32
#undef _mm512_shuffle_epi8
#define _mm512_shuffle_epi8 emulated::shuffle_epi8
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 emulated::madd_epi16
#undef _mm512_maddubs_epi16
#define _mm512_maddubs_epi16 emulated::maddubs_epi16
#undef _mm512_add_epi16
#define _mm512_add_epi16 emulated::add_epi16
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32 emulated::dpbusd
#undef _mm512_dpwssd_epi32
#define _mm512_dpwssd_epi32 emulated::dpwssd
#define _mm512_unpacklo_epi16(a, b) emulated::unpack<int16_t>(a, b, false)
#define _mm512_unpackhi_epi16(a, b) emulated::unpack<int16_t>(a, b, true)
#define _mm512_unpacklo_epi32(a, b) emulated::unpack<int32_t>(a, b, false)
#define _mm512_unpackhi_epi32(a, b) emulated::unpack<int32_t>(a, b, true)
#define _mm512_unpacklo_epi64(a, b) emulated::unpack<int64_t>(a, b, false)
#define _mm512_unpackhi_epi64(a, b) emulated::unpack<int64_t>(a, b, true)
#define _mm512_setzero_si512() emulated::set1_epi32(0)
#undef _mm256_dpbusd_epi32
#define _mm256_dpbusd_epi32 emulated::dpbusd
