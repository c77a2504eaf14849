// Dot products of the interleaved layout with 512-bit vectors, for the formats whose halves of a tile fill whole ones
// (4 and 8 bits). A vector holds 4 rows x 16 columns: four columns in each of its 128-bit lanes, whose sums are added
// up at the end. So a vector is one load, where 8 rows x 4 columns would be two.
#pragma once

#include "backend/cpu/kernels/x86/unpack.h"

namespace inferno {
namespace {

template <InterleavedFormat kFormat>
inline constexpr bool kWideDot = false;

#if defined(__AVX512VNNI__)

template <InterleavedFormat kFormat>
  requires((kFormat.bits == 4 || kFormat.bits == 8) && kFormat.sub == 32)
inline constexpr bool kWideDot<kFormat> = true;

inline __m512i load_512(const void* p) {
  return _mm512_loadu_si512(p);
}

// Four rows of a tile: columns 0-15 and 16-31.
struct WideLevels {
  __m512i low;
  __m512i high;
};
// half: 16 * bits bytes. Levels without sign, as dpbusd wants them: signed ones with 2^(bits - 1) added.
template <int kBits, bool kSigned>
inline WideLevels unpack_half(const uint8_t* half) {
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(1 << (kBits - 1)));
  WideLevels w;
  if constexpr (kBits == 8) {
    w = {load_512(half), load_512(half + 64)};
  } else {
    static_assert(kBits == 4);
    const __m512i bytes = load_512(half);
    const __m512i low_bits = _mm512_set1_epi8(15);
    w = {_mm512_and_si512(bytes, low_bits), _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_bits)};
  }
  if constexpr (kSigned) w = {_mm512_xor_si512(w.low, sign), _mm512_xor_si512(w.high, sign)};
  return w;
}

// 16 activations: four in each lane, for each of its rows.
inline __m512i spread_columns(const int8_t* x) {
  const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_epi32(order, _mm512_broadcast_i32x4(load_128(x)));
}

// Sums of four rows over 8 columns of a lane each.
inline __m512i wide_dot(const WideLevels& w, __m512i x_low, __m512i x_high) {
  return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), w.low, x_low), w.high, x_high);
}

// Lanes added up: rows 0-3 from the first, rows 4-7 from the second.
inline __m256i add_lanes(__m512i first, __m512i second) {
  const __m512i pairs =
      _mm512_add_epi32(_mm512_shuffle_i32x4(first, second, 0x88), _mm512_shuffle_i32x4(first, second, 0xdd));
  const __m512i even = _mm512_shuffle_i32x4(pairs, pairs, 0x08);
  const __m512i odd = _mm512_shuffle_i32x4(pairs, pairs, 0x0d);
  return _mm256_add_epi32(_mm512_castsi512_si256(even), _mm512_castsi512_si256(odd));
}

// The scales of sub-block kSub (of four whose 16 bytes are in every lane) as 32-bit values below 2^16.
template <int kSub>
inline __m512i wide_scales(__m512i scales) {
  constexpr char kNo = -128;
  constexpr char kS = 4 * kSub;
  const __m128i order =
      _mm_setr_epi8(kS, kNo, kNo, kNo, kS + 1, kNo, kNo, kNo, kS + 2, kNo, kNo, kNo, kS + 3, kNo, kNo, kNo);
  return _mm512_shuffle_epi8(scales, _mm512_broadcast_i32x4(order));
}

#endif

}  // namespace
}  // namespace inferno
