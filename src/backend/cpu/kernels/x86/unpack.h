// A tile of the interleaved layout back as levels, both halves of a group at once: byte 4r + i of vector c is row r,
// column 4c + i, r < 8. Levels come back in the low bits and without sign: signed ones with their offset
// 2^(bits - 1) added. Eight-bit levels stay as they are, and those of a codebook are such.
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/interleaved/interleaved.h"
#include "backend/cpu/kernels/x86/activations.h"

namespace inferno {
namespace {

// 2^kOffsetShift is what unpacking has added to the levels of a format; negative: nothing.
template <InterleavedFormat kFormat>
inline constexpr int kOffsetShift = kFormat.signed_levels() ? kFormat.level_bits() - 1 : -1;

// 16 bytes of the first half and 16 of the second.
inline __m256i load_halves(const uint8_t* first, int64_t apart) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_128(first)), load_128(first + apart), 1);
}

// Bits of each byte moved down or up; the mask keeps what belongs to the byte.
template <int kShift>
inline __m256i down(__m256i v, int mask) {
  return _mm256_and_si256(_mm256_srli_epi16(v, kShift), _mm256_set1_epi8(static_cast<char>(mask)));
}
template <int kShift>
inline __m256i up(__m256i v, int mask) {
  return _mm256_and_si256(_mm256_slli_epi16(v, kShift), _mm256_set1_epi8(static_cast<char>(mask)));
}
inline __m256i both(__m256i a, __m256i b) {
  return _mm256_or_si256(a, b);
}

// tile: of the first half, directly followed by that of the second.
template <int kBits, bool kSigned>
inline void unpack_tile(const uint8_t* tile, __m256i* w) {
  const auto load = [&](int i) { return load_halves(tile + 16 * i, 16 * kBits); };
  if constexpr (kBits == 8) {
    for (int i = 0; i < 8; ++i) w[i] = load(i);
    return;
  } else if constexpr (kBits == 4) {
    for (int i = 0; i < 4; ++i) {
      const __m256i b = load(i);
      w[i] = down<0>(b, 15);
      w[i + 4] = down<4>(b, 15);
    }
  } else if constexpr (kBits == 2) {
    for (int i = 0; i < 2; ++i) {
      const __m256i b = load(i);
      w[4 * i] = down<0>(b, 3);
      w[4 * i + 1] = down<2>(b, 3);
      w[4 * i + 2] = down<4>(b, 3);
      w[4 * i + 3] = down<6>(b, 3);
    }
  } else if constexpr (kBits == 3) {
    const __m256i b[3] = {load(0), load(1), load(2)};
    for (int i = 0; i < 3; ++i) {
      w[2 * i] = down<5>(b[i], 7);
      w[2 * i + 1] = down<2>(b[i], 7);
    }
    w[6] = both(up<1>(b[0], 6), down<1>(b[1], 1));
    w[7] = both(up<2>(b[1], 4), down<0>(b[2], 3));
  } else if constexpr (kBits == 6) {
    for (int i = 0; i < 2; ++i) {
      const __m256i b[3] = {load(3 * i), load(3 * i + 1), load(3 * i + 2)};
      for (int j = 0; j < 3; ++j) w[4 * i + j] = down<2>(b[j], 63);
      w[4 * i + 3] = both(both(up<4>(b[0], 0x30), up<2>(b[1], 0x0c)), down<0>(b[2], 3));
    }
  } else {
    static_assert(kBits == 5);
    const __m256i b[5] = {load(0), load(1), load(2), load(3), load(4)};
    if constexpr (kSigned) {
      for (int i = 0; i < 5; ++i) w[i] = down<3>(b[i], 31);
      w[5] = both(up<2>(b[0], 0x1c), down<1>(b[1], 3));
      w[6] = both(both(up<4>(b[1], 0x10), up<1>(b[2], 0x0e)), down<2>(b[3], 1));
      w[7] = both(up<3>(b[3], 0x18), down<0>(b[4], 7));
    } else {
      for (int i = 0; i < 5; ++i) w[i] = down<0>(b[i], 31);
      w[5] = both(down<5>(b[0], 7), down<2>(b[1], 0x18));
      w[6] = both(both(down<7>(b[1], 1), down<4>(b[2], 0x0e)), down<1>(b[3], 0x10));
      w[7] = both(down<6>(b[3], 3), down<3>(b[4], 0x1c));
    }
  }
  if constexpr (kSigned) {
    // A code is the level in two's complement: flipping its top bit adds the offset.
    const __m256i sign = _mm256_set1_epi8(static_cast<char>(1 << (kBits - 1)));
    for (int i = 0; i < 8; ++i) w[i] = _mm256_xor_si256(w[i], sign);
  }
}

// The same for a format, codes of a codebook replaced by what they mean.
template <InterleavedFormat kFormat>
inline void tile_levels(const uint8_t* tile, __m256i* w) {
  unpack_tile<kFormat.bits, kFormat.is_signed>(tile, w);
  if constexpr (kFormat.codebook != Codebook::none) {
    const __m256i values = _mm256_broadcastsi128_si256(load_128(kCodebooks[static_cast<int>(kFormat.codebook)]));
    for (int i = 0; i < 8; ++i) w[i] = _mm256_shuffle_epi8(values, w[i]);
  }
}

// One block's eight f16 scales, widened.
inline __m256 load_scales(const uint8_t* f16) {
  return _mm256_cvtph_ps(load_128(f16));
}
// The same of a format's d.
template <InterleavedFormat kFormat>
inline __m256 load_d(const uint8_t* d) {
  if constexpr (kFormat.e8m0_d) {
    // 2^(e - 128) has the high half (e - 1) << 7, and 0x20 and 0x40 for e = 0 and 1, which are subnormal.
    const __m128i e = _mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(static_cast<const void*>(d))));
    const __m128i normal = _mm_subs_epu16(_mm_slli_epi16(e, 7), _mm_set1_epi16(0x80));
    const __m128i small = _mm_min_epu16(_mm_slli_epi16(_mm_add_epi16(e, _mm_set1_epi16(1)), 5), _mm_set1_epi16(0x40));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_max_epu16(normal, small)), 16));
  } else {
    return load_scales(d);
  }
}

}  // namespace
}  // namespace inferno
