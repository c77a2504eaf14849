// Dot products of the interleaved layout with 512-bit vectors.
//
// Formats whose halves of a tile fill whole ones (4 and 8 bits): a vector holds 4 rows x 16 columns, four columns in
// each of its 128-bit lanes, whose sums are added up at the end. So a vector is one load, where 8 rows x 4 columns
// would be two.
//
// Six bits: a tile fills three vectors. Rearranged, a lane holds four columns of one sub-block for four rows, so that
// the sums of a whole tile, one for each row and sub-block, are one vector and are scaled at once.
#pragma once

#include "backend/cpu/kernels/x86/unpack.h"

namespace inferno {
namespace {

template <InterleavedFormat kFormat>
inline constexpr bool kWideDot = false;
// With pairs one token times 4 bits was slower than in 256-bit vectors (docs/decisions/x86-avx.md).
#if defined(__AVX512VNNI__)
inline constexpr int kWideTokens = 1;
#else
inline constexpr int kWideTokens = 2;
#endif
template <InterleavedFormat kFormat>
inline constexpr bool kSixBitDot = false;

#if defined(__AVX512F__)

#if defined(__AVX512VNNI__)
template <InterleavedFormat kFormat>
  requires((kFormat.bits == 4 || kFormat.bits == 8) && kFormat.sub == 32 &&
           (kFormat.block == 32 || kFormat.codebook == Codebook::none))
inline constexpr bool kWideDot<kFormat> = true;
#else
// Pairs of products of eight bits may not fit 16.
template <InterleavedFormat kFormat>
  requires(kFormat.bits == 4 && kFormat.sub == 32 && kFormat.codebook == Codebook::none)
inline constexpr bool kWideDot<kFormat> = true;
#endif

template <InterleavedFormat kFormat>
  requires(kFormat.bits == 6 && kFormat.sub == 16 && kFormat.is_signed && !kFormat.minimums)
inline constexpr bool kSixBitDot<kFormat> = true;

inline __m512i load_512(const void* p) {
  return _mm512_loadu_si512(p);
}

// Four rows of a tile: columns 0-15 and 16-31.
struct WideLevels {
  __m512i low;
  __m512i high;
};
// half: 16 * bits bytes. Unsigned levels, as dpbusd reads them: signed ones with 2^(bits - 1) added.
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

// The same for a format: codes of a codebook replaced by what they mean, with 128 added.
template <InterleavedFormat kFormat>
inline WideLevels half_levels(const uint8_t* half) {
  WideLevels w = unpack_half<kFormat.bits, kFormat.is_signed>(half);
  if constexpr (kFormat.codebook != Codebook::none) {
    const __m512i signed_values = _mm512_broadcast_i32x4(load_128(kCodebooks[static_cast<int>(kFormat.codebook)]));
    const __m512i values = _mm512_xor_si512(signed_values, _mm512_set1_epi8(-128));
    w = {_mm512_shuffle_epi8(values, w.low), _mm512_shuffle_epi8(values, w.high)};
  }
  return w;
}

// 16 activations: four in each lane, for each of its rows.
inline __m512i spread_columns(const int8_t* x) {
  const __m512i order = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_epi32(order, _mm512_broadcast_i32x4(load_128(x)));
}

#if defined(__AVX512VNNI__)
// Sums of four rows over 8 columns of a lane each.
inline __m512i wide_dot(const WideLevels& w, __m512i x_low, __m512i x_high) {
  return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), w.low, x_low), w.high, x_high);
}
#else
// Two pairs of products are added in 16 bits; add_scaled widens them.
inline __m512i wide_pairs(const WideLevels& w, __m512i x_low, __m512i x_high) {
  return _mm512_add_epi16(_mm512_maddubs_epi16(w.low, x_low), _mm512_maddubs_epi16(w.high, x_high));
}
inline __m512i wide_dot(const WideLevels& w, __m512i x_low, __m512i x_high) {
  return _mm512_madd_epi16(wide_pairs(w, x_low, x_high), _mm512_set1_epi32(0x10001));
}
#endif

// Lanes added up: rows 0-3 from the first, rows 4-7 from the second.
inline __m256i add_lanes(__m512i first, __m512i second) {
  const __m512i pairs =
      _mm512_add_epi32(_mm512_shuffle_i32x4(first, second, 0x88), _mm512_shuffle_i32x4(first, second, 0xdd));
  const __m512i even = _mm512_shuffle_i32x4(pairs, pairs, 0x08);
  const __m512i odd = _mm512_shuffle_i32x4(pairs, pairs, 0x0d);
  return _mm256_add_epi32(_mm512_castsi512_si256(even), _mm512_castsi512_si256(odd));
}

// A tile of six bits: w[i] has columns 4i ... 4i + 3 of both sub-blocks, in the lanes rows 0-3 of the first, of the
// second, rows 4-7 of the first, of the second. Unsigned levels: 32 is added.
inline void unpack_six_bits(const uint8_t* tile, __m512i (&w)[4]) {
  const __m512i v[3] = {load_512(tile), load_512(tile + 64), load_512(tile + 128)};
  // The bytes j, j + 3 of each half are its lanes j and j + 3 of six.
  const auto gather = [&](__m512i first_two, __m512i all) {
    return _mm512_permutex2var_epi64(_mm512_permutex2var_epi64(v[0], first_two, v[1]), all, v[2]);
  };
  const __m512i b[3] = {
      gather(_mm512_setr_epi64(0, 1, 6, 7, 12, 13, 0, 0), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 10, 11)),
      gather(_mm512_setr_epi64(2, 3, 8, 9, 14, 15, 0, 0), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 12, 13)),
      gather(_mm512_setr_epi64(4, 5, 10, 11, 0, 0, 0, 0), _mm512_setr_epi64(0, 1, 2, 3, 8, 9, 14, 15))};
  const __m512i six = _mm512_set1_epi8(63);
  const __m512i sign = _mm512_set1_epi8(32);
  constexpr int kAndXor = 0x6a;  // (a & b) ^ c
  constexpr int kSelect = 0xe4;  // c ? a : b, bit by bit
  for (int i = 0; i < 3; ++i) w[i] = _mm512_ternarylogic_epi64(_mm512_srli_epi16(b[i], 2), six, sign, kAndXor);
  const __m512i low = _mm512_ternarylogic_epi64(b[2], _mm512_slli_epi16(b[1], 2), _mm512_set1_epi8(3), kSelect);
  const __m512i all = _mm512_ternarylogic_epi64(low, _mm512_slli_epi16(b[0], 4), _mm512_set1_epi8(15), kSelect);
  w[3] = _mm512_ternarylogic_epi64(all, six, sign, kAndXor);
}

// Signed scales of the tile's two sub-blocks, in the order of unpack_six_bits; `half_bytes` from those of rows 0-3 to
// those of rows 4-7.
inline __m512i six_bit_scales(const uint8_t* scales, int half_bytes) {
  const __m128i low = _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(scales)));
  const __m128i high = _mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(scales + half_bytes)));
  return _mm512_cvtepi8_epi32(_mm_unpacklo_epi64(low, high));
}

// The same twice in the halves of 32 bits: of a product of pairs.
inline __m512i six_bit_scale_pairs(__m512i scales) {
  return _mm512_shuffle_epi8(scales,
                             _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13)));
}

// Sums of a tile in that order: over both sub-blocks, for eight rows.
inline __m256i add_sub_blocks(__m512i sums) {
  const __m512i first = _mm512_shuffle_i32x4(sums, sums, 0x08);
  const __m512i second = _mm512_shuffle_i32x4(sums, sums, 0x0d);
  return _mm256_add_epi32(_mm512_castsi512_si256(first), _mm512_castsi512_si256(second));
}

#if defined(__AVX512VNNI__)
// The scales of sub-block kSub (of four whose 16 bytes are in every lane) as 32-bit values below 2^16.
template <int kSub>
inline __m512i wide_scales(__m512i scales) {
  constexpr char kNo = -128;
  constexpr char kS = 4 * kSub;
  const __m128i order =
      _mm_setr_epi8(kS, kNo, kNo, kNo, kS + 1, kNo, kNo, kNo, kS + 2, kNo, kNo, kNo, kS + 3, kNo, kNo, kNo);
  return _mm512_shuffle_epi8(scales, _mm512_broadcast_i32x4(order));
}

// A lane's sum of 8 products has 15 bits: one product of 16 bits scales it.
inline __m512i add_scaled(__m512i sum, const WideLevels& w, __m512i x_low, __m512i x_high, __m512i scales) {
  return _mm512_dpwssd_epi32(sum, wide_dot(w, x_low, x_high), scales);
}
#else
// The same twice, for both halves of 32 bits.
template <int kSub>
inline __m512i wide_scales(__m512i scales) {
  constexpr char kNo = -128;
  constexpr char kS = 4 * kSub;
  const __m128i order =
      _mm_setr_epi8(kS, kNo, kS, kNo, kS + 1, kNo, kS + 1, kNo, kS + 2, kNo, kS + 2, kNo, kS + 3, kNo, kS + 3, kNo);
  return _mm512_shuffle_epi8(scales, _mm512_broadcast_i32x4(order));
}
inline __m512i add_scaled(__m512i sum, const WideLevels& w, __m512i x_low, __m512i x_high, __m512i scales) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(wide_pairs(w, x_low, x_high), scales));
}
#endif

#endif

}  // namespace
}  // namespace inferno
