// The unpacked weights of a matrix tile product.
//
// A panel holds 16 rows: for each 4 columns 64 bytes (16 rows x 4 columns), which is how the instruction reads its
// right side.
//   blocks of 32:   signed levels; a tile product is 32 columns deep, one block, and is scaled in float.
//   blocks of 256:  scale * level of each value, which has up to 14 bits, as 256 * high + low in two planes of signed
//                   bytes. So the tiles add up a whole block, 64 columns at a time, and no sub-block is scaled on its
//                   own: isum = 256 * sum(high * q) + sum(low * q), exact.
#pragma once

#include "backend/cpu/kernels/x86/amx_tiles.h"
#include "backend/cpu/kernels/x86/panel_stream.h"

namespace inferno {
namespace {

template <InterleavedFormat kFormat>
struct AmxPanel {
  static constexpr int kSubs = kFormat.block / kFormat.sub;
  static constexpr bool kScaled = kFormat.block == 256;
  // 2 bits times a scale of 4 bits fit one plane.
  static constexpr int kPlanes = kScaled && kFormat.bits > 2 ? 2 : 1;
  static constexpr int kPlaneBytes = 16 * kFormat.block;
  static constexpr int kD = kPlanes * kPlaneBytes;
  static constexpr int kM = kD + 64;
  static constexpr int kMins = kM + (kFormat.minimums ? 64 : 0);
  static constexpr int kBytes = kMins + (kScaled && kFormat.minimums ? 32 * kSubs : 0);

  // Of blocks of 32: the address of one with an even number, and what a product of it or the kBlock-th after it reads.
  static constexpr bool kMinimums = kFormat.minimums;
  static const uint8_t* at(const uint8_t* panel, int64_t even_block) { return panel + even_block * kBytes; }
  template <int kBlock>
  static const uint8_t* levels(const uint8_t* at) {
    return at + kBlock * kBytes;
  }
  template <int kBlock>
  static __m512 d(const uint8_t* at) {
    return _mm512_loadu_ps(floats(levels<kBlock>(at) + kD));
  }
  template <int kBlock>
  static __m512 m(const uint8_t* at) {
    return _mm512_loadu_ps(floats(levels<kBlock>(at) + kM));
  }
  template <int kBlock>
  [[gnu::always_inline]] static void prefetch(const uint8_t* at) {
    prefetch_lines<kBytes>(levels<kBlock>(at));
  }
};

// Q8_0 as it is stored, instead of unpacked.
struct StoredPanel {
  static constexpr bool kMinimums = false;
  static const uint8_t* at(const uint8_t* panel, int64_t even_block) {
    return panel + even_block / 2 * BytePanel::kPairBytes;
  }
  template <int kBlock>
  static const uint8_t* levels(const uint8_t* at) {
    return at + kBlock / 2 * BytePanel::kPairBytes + kBlock % 2 * BytePanel::kLevelBytes;
  }
  template <int kBlock>
  static __m512 d(const uint8_t* at) {
    return _mm512_cvtph_ps(
        load_256(levels<kBlock / 2 * 2>(at) + 2 * BytePanel::kLevelBytes + kBlock % 2 * BytePanel::kDBytes));
  }
  template <int kBlock>
  static __m512 m(const uint8_t* /*at*/) {
    return _mm512_setzero_ps();
  }
  template <int kBlock>
  [[gnu::always_inline]] static void prefetch(const uint8_t* at) {
    prefetch_lines<BytePanel::kLevelBytes>(levels<kBlock>(at));
    if constexpr (kBlock % 2 == 0) _mm_prefetch(levels<kBlock>(at) + 2 * BytePanel::kLevelBytes, _MM_HINT_T0);
  }
};

template <InterleavedFormat kFormat>
inline int64_t amx_panel_bytes(int64_t k) {
  return k / kFormat.block * AmxPanel<kFormat>::kBytes;
}

template <InterleavedFormat kFormat>
inline void store_levels(const __m256i* w, uint8_t* to) {
  for (int c = 0; c < 8; ++c) {
    __m256i levels = w[c];
    if constexpr (kFormat.is_signed && kFormat.bits < 8) {
      levels = _mm256_sub_epi8(levels, _mm256_set1_epi8(1 << (kFormat.bits - 1)));
    }
    store_256(to + 64 * c, levels);
  }
}

inline __m512i join_256(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Four vectors of levels of 16 rows times the scale of their sub-block, in planes. scale: of 16 rows, 16 bits for each
// two columns.
template <InterleavedFormat kFormat>
[[gnu::always_inline]] inline void store_scaled_levels(const __m512i* w, __m512i scale, uint8_t* to) {
  constexpr __mmask64 kOddBytes = 0xaaaaaaaaaaaaaaaa;
  const __m512i half = _mm512_set1_epi16(128);
  // The scale beside a zero: a sum of two products of bytes is then one of them.
  const __m512i even_scale = _mm512_maskz_mov_epi8(~kOddBytes, scale);
  const __m512i odd_scale = _mm512_slli_epi16(scale, 8);
  const __m512i offset = _mm512_slli_epi16(scale, kFormat.bits - 1);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    __m512i even;
    __m512i odd;
    if constexpr (kFormat.codebook != Codebook::none) {
      even = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(w[c], 8), 8), scale);
      odd = _mm512_mullo_epi16(_mm512_srai_epi16(w[c], 8), scale);
    } else {
      even = _mm512_maddubs_epi16(w[c], even_scale);
      odd = _mm512_maddubs_epi16(w[c], odd_scale);
      if constexpr (kFormat.is_signed) {
        even = _mm512_sub_epi16(even, offset);
        odd = _mm512_sub_epi16(odd, offset);
      }
    }
    // value + 128 = 256 * high + (low + 128), low + 128 in 0..255: low is the low byte as it is.
    _mm512_storeu_si512(to + 64 * c, _mm512_mask_mov_epi8(even, kOddBytes, _mm512_slli_epi16(odd, 8)));
    if constexpr (AmxPanel<kFormat>::kPlanes == 2) {
      const __m512i even_high = _mm512_srli_epi16(_mm512_add_epi16(even, half), 8);
      _mm512_storeu_si512(to + AmxPanel<kFormat>::kPlaneBytes + 64 * c,
                          _mm512_mask_mov_epi8(even_high, kOddBytes, _mm512_add_epi16(odd, half)));
    }
  }
}

// 32 columns of 16 rows; tile kTile of two that share a vector of scales of sub-blocks of 16, or of four for those
// of 32. scales: of the first and of the second eight rows.
template <InterleavedFormat kFormat, int kTile>
[[gnu::always_inline]] inline void store_scaled_tile(const __m512i* w, const __m256i (&scales)[2], uint8_t* to) {
  constexpr int kSub = kFormat.sub == 32 ? kTile : 2 * (kTile % 2);
  constexpr int kNext = kFormat.sub == 32 ? kSub : kSub + 1;
  constexpr bool kSigned = !kFormat.minimums;
  const auto pairs = [&]<int kOf>() {
    return join_256(scale_pairs<kOf, kSigned>(scales[0]), scale_pairs<kOf, kSigned>(scales[1]));
  };
  store_scaled_levels<kFormat>(w, pairs.template operator()<kSub>(), to);
  store_scaled_levels<kFormat>(w + 4, pairs.template operator()<kNext>(), to + 256);
}

// A block of 32 columns of eight rows, one half of a panel.
template <InterleavedFormat kFormat>
inline void unpack_amx_half(const uint8_t* block, int half, uint8_t* panel) {
  using P = AmxPanel<kFormat>;
  static_assert(!P::kScaled);
  unpack_scales<kFormat>(block, half, panel + P::kD, panel + P::kM);
  __m256i w[8];
  tile_levels<kFormat>(block + InterleavedBlock<kFormat>::kTiles, w);
  store_levels<kFormat>(w, panel + 32 * half);
}

// A block of 256 columns of two times eight rows.
template <InterleavedFormat kFormat>
inline void unpack_amx_panel(const uint8_t* first, const uint8_t* second, uint8_t* panel) {
  using Layout = InterleavedBlock<kFormat>;
  using P = AmxPanel<kFormat>;
  static_assert(P::kScaled);
  unpack_scales<kFormat>(first, 0, panel + P::kD, panel + P::kM);
  unpack_scales<kFormat>(second, 1, panel + P::kD, panel + P::kM);
#pragma GCC unroll 8
  for (int tile = 0; tile < kFormat.block / 32; ++tile) {
    __m256i halves[2][8];
    tile_levels<kFormat>(first + Layout::kTiles + 2 * tile * Layout::kTileBytes, halves[0]);
    tile_levels<kFormat>(second + Layout::kTiles + 2 * tile * Layout::kTileBytes, halves[1]);
    __m512i w[8];
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) w[c] = join_256(halves[0][c], halves[1][c]);
    uint8_t* to = panel + 512 * tile;
    const int at = tile * P::kSubs / 8 / 4;
    const __m256i scales[2] = {load_sub_scales<kFormat>(first, at), load_sub_scales<kFormat>(second, at)};
    switch (tile % 4) {
      case 0:
        store_scaled_tile<kFormat, 0>(w, scales, to);
        break;
      case 1:
        store_scaled_tile<kFormat, 1>(w, scales, to);
        break;
      case 2:
        store_scaled_tile<kFormat, 2>(w, scales, to);
        break;
      default:
        store_scaled_tile<kFormat, 3>(w, scales, to);
        break;
    }
  }
  if constexpr (kFormat.minimums) {
    unpack_minimums<kFormat>(first, 0, panel + P::kMins);
    unpack_minimums<kFormat>(second, 1, panel + P::kMins);
  }
}

}  // namespace
}  // namespace inferno
