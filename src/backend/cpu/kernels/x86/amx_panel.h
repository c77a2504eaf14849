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

  // Of blocks of 32, by their number.
  static constexpr bool kMinimums = kFormat.minimums;
  static const uint8_t* levels(const uint8_t* panel, int64_t block) { return panel + block * kBytes; }
  static __m512 d(const uint8_t* panel, int64_t block) { return _mm512_loadu_ps(floats(levels(panel, block) + kD)); }
  static __m512 m(const uint8_t* panel, int64_t block) { return _mm512_loadu_ps(floats(levels(panel, block) + kM)); }
  [[gnu::always_inline]] static void prefetch(const uint8_t* panel, int64_t block) {
    prefetch_lines<kBytes>(levels(panel, block));
  }
};

// Q8_0 as it is stored, instead of unpacked.
struct StoredPanel {
  static constexpr bool kMinimums = false;
  static const uint8_t* levels(const uint8_t* panel, int64_t block) { return panel_levels(panel, block); }
  static __m512 d(const uint8_t* panel, int64_t block) { return panel_d(panel, block); }
  static __m512 m(const uint8_t* /*panel*/, int64_t /*block*/) { return _mm512_setzero_ps(); }
  [[gnu::always_inline]] static void prefetch(const uint8_t* panel, int64_t block) {
    prefetch_lines<BytePanel::kLevelBytes>(levels(panel, block));
    if (block % 2 == 0) _mm_prefetch(levels(panel, block) + 2 * BytePanel::kLevelBytes, _MM_HINT_T0);
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

// Four vectors of levels times the scale of their sub-block, in planes.
template <InterleavedFormat kFormat, int kSub>
inline void store_scaled_levels(const __m256i* w, __m256i scales, uint8_t* to) {
  const __m256i scale = scale_pairs<kSub, !kFormat.minimums>(scales);
  const __m256i low_byte = _mm256_set1_epi16(0xff);
  const __m256i half = _mm256_set1_epi16(128);
  for (int c = 0; c < 4; ++c) {
    __m256i even = _mm256_and_si256(w[c], low_byte);
    __m256i odd = _mm256_srli_epi16(w[c], 8);
    if constexpr (kFormat.codebook != Codebook::none) {
      even = _mm256_srai_epi16(_mm256_slli_epi16(w[c], 8), 8);
      odd = _mm256_srai_epi16(w[c], 8);
    } else if constexpr (kFormat.is_signed) {
      const __m256i offset = _mm256_set1_epi16(1 << (kFormat.bits - 1));
      even = _mm256_sub_epi16(even, offset);
      odd = _mm256_sub_epi16(odd, offset);
    }
    // value + 128 = 256 * high + (low + 128), low + 128 in 0..255: low is the low byte as it is.
    even = _mm256_mullo_epi16(even, scale);
    odd = _mm256_mullo_epi16(odd, scale);
    store_256(to + 64 * c, _mm256_or_si256(_mm256_and_si256(even, low_byte), _mm256_slli_epi16(odd, 8)));
    if constexpr (AmxPanel<kFormat>::kPlanes == 2) {
      store_256(to + AmxPanel<kFormat>::kPlaneBytes + 64 * c,
                _mm256_or_si256(_mm256_srli_epi16(_mm256_add_epi16(even, half), 8),
                                _mm256_andnot_si256(low_byte, _mm256_add_epi16(odd, half))));
    }
  }
}

// 32 columns; tile kTile of two that share a vector of scales of sub-blocks of 16, or of four for those of 32.
template <InterleavedFormat kFormat, int kTile>
inline void store_scaled_tile(const __m256i* w, __m256i scales, uint8_t* to) {
  if constexpr (kFormat.sub == 32) {
    store_scaled_levels<kFormat, kTile>(w, scales, to);
    store_scaled_levels<kFormat, kTile>(w + 4, scales, to + 256);
  } else {
    store_scaled_levels<kFormat, 2 * (kTile % 2)>(w, scales, to);
    store_scaled_levels<kFormat, 2 * (kTile % 2) + 1>(w + 4, scales, to + 256);
  }
}

template <InterleavedFormat kFormat>
inline void unpack_amx_panel(const uint8_t* block, int half, uint8_t* panel) {
  using Layout = InterleavedBlock<kFormat>;
  using P = AmxPanel<kFormat>;
  unpack_scales<kFormat>(block, half, panel + P::kD, panel + P::kM);
  for (int tile = 0; tile < kFormat.block / 32; ++tile) {
    __m256i w[8];
    tile_levels<kFormat>(block + Layout::kTiles + 2 * tile * Layout::kTileBytes, w);
    uint8_t* to = panel + 512 * tile + 32 * half;
    if constexpr (!P::kScaled) {
      store_levels<kFormat>(w, to);
    } else {
      const __m256i scales = load_sub_scales<kFormat>(block, tile * P::kSubs / 8 / 4);
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
  }
  if constexpr (P::kScaled && kFormat.minimums) unpack_minimums<kFormat>(block, half, panel + P::kMins);
}

}  // namespace
}  // namespace inferno
