// Quantized weights times many tokens without the 8-bit dot products: pairs of products are added. Bit-equal to
// quant/numerics.h.
//
// Levels of up to six bits are multiplied as unsigned bytes, and as many pairs are added in 16 bits as fit; the product
// with the sub-block's scale (or 1) widens them to 32. Levels of eight bits, for which not even one pair would fit in
// every case, and their activations are 16 bits wide. A panel of 16 rows is unpacked once and multiplied by all tiles
// of tokens (side_by_side.h).
#pragma once

#include "backend/cpu/kernels/x86/ints.h"
#include "backend/cpu/kernels/x86/panel.h"
#include "backend/cpu/kernels/x86/side_by_side.h"

namespace inferno {
namespace {

inline constexpr int kPanelVectors = static_cast<int>(kPanelRows / kWide);

// Codebooks whose values are small: with an offset they are levels of five bits.
template <InterleavedFormat kFormat>
inline constexpr bool kSmallCodes = kFormat.codebook == Codebook::e2m1;
template <InterleavedFormat kFormat>
inline constexpr int kPairBits = kSmallCodes<kFormat> ? 5 : kFormat.level_bits();
template <InterleavedFormat kFormat>
inline constexpr bool kWordLevels = kPairBits<kFormat> == 8;
// What is added to levels so that they are unsigned.
template <InterleavedFormat kFormat>
inline constexpr int kLevelOffset = kSmallCodes<kFormat>                               ? 12
                                    : kWordLevels<kFormat> || !kFormat.signed_levels() ? 0
                                                                                       : 1 << (kPairBits<kFormat> - 1);

// One block of a panel.
template <InterleavedFormat kFormat>
struct PairPanel {
  static constexpr bool kWords = kWordLevels<kFormat>;
  static constexpr bool kScaled = kFormat.block == 256;
  static constexpr int kSubs = kFormat.block / kFormat.sub;
  // Of the sums over sub-blocks: with the minimums, or with the scales times minus the offset of the levels.
  static constexpr bool kPairs = kScaled && (kFormat.minimums || kLevelOffset<kFormat> != 0);
  static constexpr int kD = 16 * kFormat.block * (kWords ? 2 : 1);  // f32[16]
  static constexpr int kM = kD + 64;                                // f32[16]
  static constexpr int kScales = kM + (kFormat.minimums ? 64 : 0);  // per sub-block: int32[16], of bytes int16[16][2]
  static constexpr int kPairSums = kScales + (kScaled ? 64 * kSubs : 0);  // int16[16][2] per two sub-blocks
  static constexpr int kBytes = kPairSums + (kPairs ? 32 * kSubs : 0);
};

template <InterleavedFormat kFormat, int kSub>
inline void unpack_sub_scale(__m256i scales, uint8_t* to) {
  constexpr bool kSigned = !kFormat.minimums;
  if constexpr (kWordLevels<kFormat>) {
    store_256(to + 64 * kSub, scale_values<kSub, kSigned>(scales));
  } else {
    store_256(to + 64 * kSub, scale_pairs<kSub, kSigned>(scales));
  }
}
// Minus the offset times the signed scales of two sub-blocks.
template <InterleavedFormat kFormat, int kSub>
inline void unpack_offset_pair(__m256i scales, uint8_t* to) {
  const __m256i even = scale_values<kSub, true>(scales);
  const __m256i odd = _mm256_slli_epi32(scale_values<kSub + 1, true>(scales), 16);
  store_256(to, _mm256_mullo_epi16(_mm256_blend_epi16(even, odd, 0xaa), _mm256_set1_epi16(-kLevelOffset<kFormat>)));
}

// Half (0 or 1) of a block of a panel.
template <InterleavedFormat kFormat>
inline void unpack_pair_panel(const uint8_t* block, int half, uint8_t* panel) {
  using Layout = InterleavedBlock<kFormat>;
  using P = PairPanel<kFormat>;
  unpack_scales<kFormat>(block, half, panel + P::kD, panel + P::kM);
  for (int tile = 0; tile < kFormat.block / 32; ++tile) {
    __m256i w[8];
    tile_levels<kFormat>(block + Layout::kTiles + 2 * tile * Layout::kTileBytes, w);
    for (int c = 0; c < 8; ++c) {
      if constexpr (P::kWords) {
        uint8_t* to = panel + (8 * tile + c) * 128 + 32 * half;
        store_256(to, _mm256_srai_epi16(_mm256_slli_epi16(w[c], 8), 8));
        store_256(to + 64, _mm256_srai_epi16(w[c], 8));
      } else {
        if constexpr (kSmallCodes<kFormat>) w[c] = _mm256_add_epi8(w[c], _mm256_set1_epi8(kLevelOffset<kFormat>));
        store_256(panel + (8 * tile + c) * 64 + 32 * half, w[c]);
      }
    }
  }
  if constexpr (P::kScaled) {
    for (int i = 0; i < P::kSubs / 4; ++i) {
      const __m256i scales = load_sub_scales<kFormat>(block, i);
      uint8_t* to = panel + P::kScales + 256 * i + 32 * half;
      unpack_sub_scale<kFormat, 0>(scales, to);
      unpack_sub_scale<kFormat, 1>(scales, to);
      unpack_sub_scale<kFormat, 2>(scales, to);
      unpack_sub_scale<kFormat, 3>(scales, to);
      if constexpr (kLevelOffset<kFormat> != 0) {
        uint8_t* pairs = panel + P::kPairSums + 128 * i + 32 * half;
        unpack_offset_pair<kFormat, 0>(scales, pairs);
        unpack_offset_pair<kFormat, 2>(scales, pairs + 64);
      }
    }
    if constexpr (kFormat.minimums) unpack_minimums<kFormat>(block, half, panel + P::kPairSums);
  }
}

// ---- products with a tile of kTokens tokens

template <int kTokens>
struct PairSums {
  Ints of[kTokens][kPanelVectors];
};

// 16 rows x kTokens x 4 * kVectors columns in bytes, in 16 bits.
template <int kVectors, int kTokens>
[[gnu::always_inline]] inline void add_bytes(const uint8_t* levels, const uint8_t* x, PairSums<kTokens>& c) {
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    Ints w[kPanelVectors];
#pragma GCC unroll 2
    for (int h = 0; h < kPanelVectors; ++h) w[h] = ints_load(levels + 64 * v + 32 * h);
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      const Ints columns = ints_spread(x + (v * kTokens + t) * 4);
#pragma GCC unroll 2
      for (int h = 0; h < kPanelVectors; ++h) {
        const Ints pairs = byte_pairs(w[h], columns);
        c.of[t][h] = v == 0 ? pairs : words_add(c.of[t][h], pairs);
        in_order(c.of[t][h]);
      }
    }
  }
}

// 16 rows x kTokens x 2 * kVectors columns in words.
template <int kVectors, int kTokens>
[[gnu::always_inline]] inline void add_words(const uint8_t* levels, const uint8_t* x, PairSums<kTokens>& c) {
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    Ints w[kPanelVectors];
#pragma GCC unroll 2
    for (int h = 0; h < kPanelVectors; ++h) w[h] = ints_load(levels + 64 * v + 32 * h);
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      const Ints columns = ints_spread(x + (v * kTokens + t) * 4);
#pragma GCC unroll 2
      for (int h = 0; h < kPanelVectors; ++h) {
        const Ints pairs = word_pairs(w[h], columns);
        c.of[t][h] = v == 0 ? pairs : ints_add(c.of[t][h], pairs);
        in_order(c.of[t][h]);
      }
    }
  }
}

template <int kTokens>
struct PairChains {
  Wide of[kTokens][kPanelVectors];
};
inline float float_at(const uint8_t* p) {
  float x;
  __builtin_memcpy(&x, p, 4);
  return x;
}

// One link of every chain; minus: of the negative of the sums.
template <int kTokens, bool kMinus = false>
[[gnu::always_inline]] inline void add_links(const PairSums<kTokens>& sums, const uint8_t* scales, const uint8_t* dx,
                                             PairChains<kTokens>& chains) {
#pragma GCC unroll 2
  for (int h = 0; h < kPanelVectors; ++h) {
    const Wide d = wide_load(floats(scales + 32 * h));
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      const Wide product = wide_mul(d, wide_set(float_at(dx + 4 * t)));
      const Wide sum = ints_to_floats(sums.of[t][h]);
      // A minus on either factor gives the same bits.
      chains.of[t][h] = wide_fma(kMinus ? -sum : sum, product, chains.of[t][h]);
    }
  }
}

template <InterleavedFormat kFormat, int kTokens>
inline void add_block_32(const uint8_t* panel, const uint8_t* x, PairChains<kTokens>& chains) {
  using P = PairPanel<kFormat>;
  using Side = SideBlock<32, P::kWords>;
  const uint8_t* dx = x + Side::kD * kTokens;
  const uint8_t* q_sums = x + Side::kSums * kTokens;
  PairSums<kTokens> isum;
  if constexpr (P::kWords) {
    add_words<16>(panel, x, isum);
  } else {
    constexpr int kFit = kPairsThatFit<kPairBits<kFormat>>;
#pragma GCC unroll 4
    for (int v = 0; v < 8; v += kFit) {
      PairSums<kTokens> c;
      add_bytes<kFit>(panel + 64 * v, x + 4 * v * kTokens, c);
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
        for (int h = 0; h < kPanelVectors; ++h) {
          const Ints sum = word_pairs(c.of[t][h], ints_set(0x10001));
          isum.of[t][h] = v == 0 ? sum : ints_add(isum.of[t][h], sum);
        }
      }
    }
    if constexpr (kLevelOffset<kFormat> != 0) {
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        // A sum fits the low 16 bits, by which alone it is multiplied.
        const Ints offset = word_pairs(ints_spread(q_sums + 4 * t), ints_set(0xffff & -kLevelOffset<kFormat>));
#pragma GCC unroll 2
        for (int h = 0; h < kPanelVectors; ++h) isum.of[t][h] = ints_add(isum.of[t][h], offset);
      }
    }
  }
  add_links(isum, panel + P::kD, dx, chains);
  if constexpr (kFormat.minimums) {
    PairSums<kTokens> msum;
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (int h = 0; h < kPanelVectors; ++h) msum.of[t][h] = ints_spread(q_sums + 4 * t);
    }
    add_links(msum, panel + P::kM, dx, chains);
  }
}

// The sum over sub-blocks of a panel's pairs times the sums of q, added to `total`.
template <InterleavedFormat kFormat, int kTokens>
[[gnu::always_inline]] inline void add_pair_sums(const uint8_t* panel, const uint8_t* x, PairSums<kTokens>& total) {
  using P = PairPanel<kFormat>;
  using Side = SideBlock<256, P::kWords>;
  const uint8_t* q_sums = x + (kFormat.sub == 32 ? Side::kSums : Side::kSums16) * kTokens;
  for (int i = 0; i < P::kSubs / 2; ++i) {
#pragma GCC unroll 2
    for (int h = 0; h < kPanelVectors; ++h) {
      const Ints pair = ints_load(panel + P::kPairSums + 64 * i + 32 * h);
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        const Ints sums = word_pairs(pair, ints_spread(q_sums + (i * kTokens + t) * 4));
        total.of[t][h] = ints_add(total.of[t][h], sums);
      }
    }
  }
}

template <InterleavedFormat kFormat, int kTokens>
inline void add_block_256(const uint8_t* panel, const uint8_t* x, PairChains<kTokens>& chains) {
  using P = PairPanel<kFormat>;
  using Side = SideBlock<256, P::kWords>;
  const uint8_t* dx = x + Side::kD * kTokens;
  PairSums<kTokens> isum = {};
  for (int j = 0; j < P::kSubs; ++j) {
    if constexpr (P::kWords) {
      PairSums<kTokens> c;
      add_words<kFormat.sub / 2>(panel + 32 * kFormat.sub * j, x + 2 * kFormat.sub * j * kTokens, c);
#pragma GCC unroll 2
      for (int h = 0; h < kPanelVectors; ++h) {
        const Ints scale = ints_load(panel + P::kScales + 64 * j + 32 * h);
#pragma GCC unroll 12
        for (int t = 0; t < kTokens; ++t) isum.of[t][h] = ints_add(isum.of[t][h], ints_mul(c.of[t][h], scale));
      }
    } else {
      constexpr int kVectors = kFormat.sub / 4;
      constexpr int kFit = kPairsThatFit<kPairBits<kFormat>> < kVectors ? kPairsThatFit<kPairBits<kFormat>> : kVectors;
      const uint8_t* levels = panel + 16 * kFormat.sub * j;
      const uint8_t* columns = x + kFormat.sub * j * kTokens;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v += kFit) {
        PairSums<kTokens> c;
        add_bytes<kFit>(levels + 64 * v, columns + 4 * v * kTokens, c);
#pragma GCC unroll 2
        for (int h = 0; h < kPanelVectors; ++h) {
          const Ints scale = ints_load(panel + P::kScales + 64 * j + 32 * h);
#pragma GCC unroll 12
          for (int t = 0; t < kTokens; ++t) isum.of[t][h] = ints_add(isum.of[t][h], word_pairs(c.of[t][h], scale));
        }
      }
    }
  }
  if constexpr (kLevelOffset<kFormat> != 0) add_pair_sums<kFormat>(panel, x, isum);
  add_links(isum, panel + P::kD, dx, chains);
  if constexpr (kFormat.minimums) {
    PairSums<kTokens> msum = {};
    add_pair_sums<kFormat>(panel, x, msum);
    add_links<kTokens, true>(msum, panel + P::kM, dx, chains);
  }
}

// A panel times the kTokens tokens of a tile, of which the task has `count`.
template <InterleavedFormat kFormat, int kTokens>
inline void multiply_side(const LinearTask& task, const uint8_t* panel, int64_t row, int64_t token, int64_t count) {
  using P = PairPanel<kFormat>;
  using Side = SideBlock<kFormat.block, P::kWords>;
  const uint8_t* x =
      static_cast<const uint8_t*>(task.activations) + token * side_token_bytes<kFormat.block, P::kWords>(task.k);
  const int64_t blocks = task.k / kFormat.block;
  PairChains<kTokens> chains = {};
  for (int64_t b = 0; b < blocks; ++b, panel += P::kBytes, x += Side::kBytes * kTokens) {
    if constexpr (kFormat.block == 32) {
      add_block_32<kFormat>(panel, x, chains);
    } else {
      add_block_256<kFormat>(panel, x, chains);
    }
  }
  for (int64_t t = 0; t < count; ++t) {
#if defined(__AVX512F__)
    store_panel_rows(task, token + t, row, chains.of[t][0]);
#else
    store_rows(task, token + t, row, chains.of[t][0]);
    if (row + 8 < task.row_end) store_rows(task, token + t, row + 8, chains.of[t][1]);
#endif
  }
}

template <InterleavedFormat kFormat, int kTokens = kSideWidth>
inline void multiply_side(const LinearTask& task, const uint8_t* panel, int64_t row, int64_t token, int64_t width,
                          int64_t count) {
  if constexpr (kTokens > kSideStep) {
    if (width < kTokens) {
      return multiply_side<kFormat, kTokens - kSideStep>(task, panel, row, token, width, count);
    }
  }
  multiply_side<kFormat, kTokens>(task, panel, row, token, count);
}

template <InterleavedFormat kFormat>
inline int64_t pair_scratch(int64_t k, int64_t tokens) {
  return tokens < kSideTokens ? 0 : k / kFormat.block * PairPanel<kFormat>::kBytes;
}

template <InterleavedFormat kFormat>
inline void run_pairs(const LinearTask& task) noexcept {
  if (task.tokens < kSideTokens) return run_gemv<kFormat>(task);
  auto* panel = static_cast<uint8_t*>(task.scratch);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    for_panel_blocks<kFormat>(task, row, [panel](const uint8_t* block, int half, int64_t b) {
      unpack_pair_panel<kFormat>(block, half, panel + b * PairPanel<kFormat>::kBytes);
    });
    for (int64_t t = 0; t < task.tokens; t += kSideWidth) {
      const int64_t rest = task.tokens - t;
      const int64_t count = rest < kSideWidth ? rest : kSideWidth;
      multiply_side<kFormat>(task, panel, row, t, side_width(task.tokens, t), count);
    }
  }
}

}  // namespace
}  // namespace inferno
