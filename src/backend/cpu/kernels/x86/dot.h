// 8-bit dot products of eight rows at once, with the dot-product instructions where the file is compiled with them and
// with pairwise multiplies where not. Exact either way.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/x86/unpack.h"

namespace inferno {
namespace {

// Four activations for all rows.
inline __m256i four_columns(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}

// The scales of sub-block kSub of four, per row, from bytes 4j + r of each half: as one 32-bit value, or twice in the
// two halves of it.
template <int kSub, bool kSigned>
inline __m256i scale_values(__m256i scales) {
  constexpr char kNo = -128;
  constexpr char kS = 4 * kSub;
  if constexpr (kSigned) {
    const __m128i high =
        _mm_setr_epi8(kNo, kNo, kNo, kS, kNo, kNo, kNo, kS + 1, kNo, kNo, kNo, kS + 2, kNo, kNo, kNo, kS + 3);
    return _mm256_srai_epi32(_mm256_shuffle_epi8(scales, _mm256_broadcastsi128_si256(high)), 24);
  } else {
    const __m128i low =
        _mm_setr_epi8(kS, kNo, kNo, kNo, kS + 1, kNo, kNo, kNo, kS + 2, kNo, kNo, kNo, kS + 3, kNo, kNo, kNo);
    return _mm256_shuffle_epi8(scales, _mm256_broadcastsi128_si256(low));
  }
}
template <int kSub, bool kSigned>
inline __m256i scale_pairs(__m256i scales) {
  constexpr char kNo = -128;
  constexpr char kS = 4 * kSub;
  if constexpr (kSigned) {
    const __m128i high =
        _mm_setr_epi8(kNo, kS, kNo, kS, kNo, kS + 1, kNo, kS + 1, kNo, kS + 2, kNo, kS + 2, kNo, kS + 3, kNo, kS + 3);
    return _mm256_srai_epi16(_mm256_shuffle_epi8(scales, _mm256_broadcastsi128_si256(high)), 8);
  } else {
    const __m128i low =
        _mm_setr_epi8(kS, kNo, kS, kNo, kS + 1, kNo, kS + 1, kNo, kS + 2, kNo, kS + 2, kNo, kS + 3, kNo, kS + 3, kNo);
    return _mm256_shuffle_epi8(scales, _mm256_broadcastsi128_si256(low));
  }
}

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)

inline constexpr bool kEightBitOffset = true;  // eight-bit levels are multiplied as level + 128

// kCount vectors of levels times 4 * kCount activations, per row.
template <int kBits, int kCount>
inline __m256i row_dot(const __m256i* w, const int8_t* x) {
  __m256i sums[2] = {};
  for (int i = 0; i < kCount; ++i) {
    const __m256i levels = kBits == 8 ? _mm256_xor_si256(w[i], _mm256_set1_epi8(-128)) : w[i];
    sums[i % 2] = _mm256_dpbusd_epi32(sums[i % 2], levels, four_columns(x + 4 * i));
  }
  return _mm256_add_epi32(sums[0], sums[1]);
}

// What scaled_dot multiplies by.
template <int kSub, bool kSigned>
inline __m256i scale_factor(__m256i scales) {
  return scale_values<kSub, kSigned>(scales);
}

// row_dot times factor.
template <int kBits, int kCount>
inline __m256i scaled_dot(const __m256i* w, const int8_t* x, __m256i factor) {
  return _mm256_mullo_epi32(row_dot<kBits, kCount>(w, x), factor);
}

#else

inline constexpr bool kEightBitOffset = false;

// How many products of pairs can be added in 16 bits: a pair is at most 2 * 127 * (2^bits - 1).
template <int kBits>
inline constexpr int kPairsThatFit = kBits <= 4   ? 8
                                     : kBits == 5 ? 4
                                     : kBits == 6 ? 2
                                                  : 1;

template <int kBits>
inline __m256i pair_products(__m256i w, __m256i x) {
  if constexpr (kBits == 8) {
    // The instruction's left side is unsigned: |w| times x with w's sign, at most 2 * 128 * 127.
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  } else {
    return _mm256_maddubs_epi16(w, x);
  }
}

template <int kBits, int kCount>
inline __m256i scaled_dot(const __m256i* w, const int8_t* x, __m256i factor) {
  constexpr int kFit = kPairsThatFit<kBits> < kCount ? kPairsThatFit<kBits> : kCount;
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < kCount; i += kFit) {
    __m256i pairs = pair_products<kBits>(w[i], four_columns(x + 4 * i));
    for (int j = i + 1; j < i + kFit; ++j) {
      pairs = _mm256_add_epi16(pairs, pair_products<kBits>(w[j], four_columns(x + 4 * j)));
    }
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, factor));
  }
  return sum;
}

template <int kBits, int kCount>
inline __m256i row_dot(const __m256i* w, const int8_t* x) {
  return scaled_dot<kBits, kCount>(w, x, _mm256_set1_epi16(1));
}

template <int kSub, bool kSigned>
inline __m256i scale_factor(__m256i scales) {
  return scale_pairs<kSub, kSigned>(scales);
}

#endif

// Whether row_dot's result has an excess of 2^kOffsetShift times the sum of the activations.
template <InterleavedFormat kFormat>
inline constexpr bool kHasOffset = kFormat.signed_levels() && (kFormat.level_bits() < 8 || kEightBitOffset);

}  // namespace
}  // namespace inferno
