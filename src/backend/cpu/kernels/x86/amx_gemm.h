// Quantized weights times many tokens with the matrix tiles: 16 tokens x 16 rows x up to 64 columns in one
// instruction, sums in int32. Bit-equal to quant/numerics.h.
//
// A panel holds 16 rows: for each 4 columns 64 bytes (16 rows x 4 columns), which is how the instruction reads its
// right side. Activation rows are its left side as they are.
//   blocks of 32:   signed levels; a tile product is 32 columns deep, one block, and is scaled in float.
//   blocks of 256:  scale * level of each value, which has up to 14 bits, as 128 * high + low in two planes of signed
//                   bytes. So the tiles add up a whole block, 64 columns at a time, and no sub-block is scaled on its
//                   own: isum = 128 * sum(high * q) + sum(low * q), exact.
//
// The tiles are configured when a kernel starts and released when it ends: a kernel leaves no state in the thread.
#pragma once

#include "backend/cpu/kernels/x86/gemm.h"

namespace inferno {
namespace {

inline constexpr int64_t kTileTokens = 16;
inline constexpr int64_t kAmxTokens = 8;  // tiles from this many tokens on: below, half of them would be empty
inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kTileResults = 4;  // tiles 0-3 collect, 4 and 5 hold tokens, 6 and 7 weights

// What the instruction that configures the tiles reads.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// Products of `columns` columns.
inline void configure_tiles(int columns) {
  TileConfig config = {};
  config.palette = 1;
  for (int i = 0; i < 4; ++i) {
    config.rows[i] = kTileTokens;
    config.row_bytes[i] = 64;
  }
  for (int i = 4; i < 6; ++i) {
    config.rows[i] = kTileTokens;
    config.row_bytes[i] = static_cast<uint16_t>(columns);
  }
  for (int i = 6; i < 8; ++i) {
    config.rows[i] = static_cast<uint8_t>(columns / 4);
    config.row_bytes[i] = 64;
  }
  // The intrinsic of some compilers names only the first bytes as read.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// Memory that tiles read is written before, memory that they wrote is read after: the compiler is not told by every
// intrinsic.
inline void memory_barrier() {
  __asm__ volatile("" : : : "memory");
}

// ---- activations: rows, with zero tokens up to a whole tile

inline int64_t padded_tokens(int64_t tokens) {
  return tokens < kAmxTokens ? tokens : (tokens + kTileTokens - 1) / kTileTokens * kTileTokens;
}
template <int kBlock>
inline int64_t padded_rows_bytes(int64_t tokens, int64_t k) {
  return padded_tokens(tokens) * activation_row_bytes<kBlock>(k);
}
template <int kBlock>
inline void prepare_padded_rows(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                                void* buffer) noexcept {
  prepare_rows<kBlock>(x, x_stride, tokens, k, begin, end, buffer);
  if (end < tokens) return;
  const int64_t bytes = activation_row_bytes<kBlock>(k);
  __builtin_memset(static_cast<uint8_t*>(buffer) + tokens * bytes, 0,
                   static_cast<size_t>((padded_tokens(tokens) - tokens) * bytes));
}
template <int kBlock>
inline constexpr ActivationLayout kPaddedRows = {
    kBlock == 32 ? "8 bits per 32, rows in sixteens" : "8 bits per 256, rows in sixteens", 1, padded_rows_bytes<kBlock>,
    prepare_padded_rows<kBlock>};

// ---- panels

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
};

template <InterleavedFormat kFormat>
inline void put_levels(const __m256i* w, uint8_t* to) {
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
inline void put_scaled_levels(const __m256i* w, __m256i scales, uint8_t* to) {
  const __m256i scale = scale_pairs<kSub, !kFormat.minimums>(scales);
  const __m256i low_byte = _mm256_set1_epi16(0xff);
  const __m256i low_seven = _mm256_set1_epi16(0x7f);
  const __m256i half = _mm256_set1_epi16(64);
  for (int c = 0; c < 4; ++c) {
    __m256i even = _mm256_and_si256(w[c], low_byte);
    __m256i odd = _mm256_srli_epi16(w[c], 8);
    if constexpr (kFormat.is_signed) {
      const __m256i offset = _mm256_set1_epi16(1 << (kFormat.bits - 1));
      even = _mm256_sub_epi16(even, offset);
      odd = _mm256_sub_epi16(odd, offset);
    }
    // value + 64 = 128 * high + (low + 64), low + 64 in 0..127
    even = _mm256_add_epi16(_mm256_mullo_epi16(even, scale), half);
    odd = _mm256_add_epi16(_mm256_mullo_epi16(odd, scale), half);
    const __m256i low =
        _mm256_or_si256(_mm256_and_si256(even, low_seven), _mm256_slli_epi16(_mm256_and_si256(odd, low_seven), 8));
    store_256(to + 64 * c, _mm256_sub_epi8(low, _mm256_set1_epi8(64)));
    if constexpr (AmxPanel<kFormat>::kPlanes == 2) {
      const __m256i high = _mm256_or_si256(_mm256_and_si256(_mm256_srai_epi16(even, 7), low_byte),
                                           _mm256_slli_epi16(_mm256_srai_epi16(odd, 7), 8));
      store_256(to + AmxPanel<kFormat>::kPlaneBytes + 64 * c, high);
    }
  }
}

// 32 columns; tile kTile of two that share a vector of scales of sub-blocks of 16, or of four for those of 32.
template <InterleavedFormat kFormat, int kTile>
inline void put_scaled_tile(const __m256i* w, __m256i scales, uint8_t* to) {
  if constexpr (kFormat.sub == 32) {
    put_scaled_levels<kFormat, kTile>(w, scales, to);
    put_scaled_levels<kFormat, kTile>(w + 4, scales, to + 256);
  } else {
    put_scaled_levels<kFormat, 2 * (kTile % 2)>(w, scales, to);
    put_scaled_levels<kFormat, 2 * (kTile % 2) + 1>(w + 4, scales, to + 256);
  }
}

template <InterleavedFormat kFormat>
inline void unpack_amx_panel(const uint8_t* block, int half, uint8_t* panel) {
  using Layout = InterleavedBlock<kFormat>;
  using P = AmxPanel<kFormat>;
  unpack_scales<kFormat>(block, half, panel + P::kD, panel + P::kM);
  for (int tile = 0; tile < kFormat.block / 32; ++tile) {
    __m256i w[8];
    unpack_tile<kFormat.bits, kFormat.is_signed>(block + Layout::kTiles + 2 * tile * Layout::kTileBytes, w);
    uint8_t* to = panel + 512 * tile + 32 * half;
    if constexpr (!P::kScaled) {
      put_levels<kFormat>(w, to);
    } else {
      const __m256i scales = load_sub_scales<kFormat>(block, tile * P::kSubs / 8 / 4);
      switch (tile % 4) {
        case 0:
          put_scaled_tile<kFormat, 0>(w, scales, to);
          break;
        case 1:
          put_scaled_tile<kFormat, 1>(w, scales, to);
          break;
        case 2:
          put_scaled_tile<kFormat, 2>(w, scales, to);
          break;
        default:
          put_scaled_tile<kFormat, 3>(w, scales, to);
          break;
      }
    }
  }
  if constexpr (P::kScaled && kFormat.minimums) unpack_minimums<kFormat>(block, half, panel + P::kMins);
}

// ---- blocks of 32

// One tile of tokens from `token`. results: kTileResults tiles.
template <InterleavedFormat kFormat>
inline void amx_tokens_32(const LinearTask& task, const uint8_t* panel, int64_t row, int64_t token, uint8_t* results) {
  using P = AmxPanel<kFormat>;
  const int64_t blocks = task.k / 32;
  const int64_t stride = row_bytes_32(task.k);
  const Row32 first = row_32(task.activations, token, task.k);
  const float* d = first.d;
  const int64_t d_stride = stride / 4;
  __m512 sums[kTileTokens] = {};
  for (int64_t b = 0; b < blocks; b += kTileResults) {
    const int64_t count = blocks - b < kTileResults ? blocks - b : kTileResults;
    const int8_t* q = first.q + b * 32;
    const uint8_t* w = panel + b * P::kBytes;
    memory_barrier();
    _tile_zero(0);
    _tile_loadd(4, q, stride);
    _tile_loadd(6, w, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_stored(0, results, 64);
    if (count > 1) {
      _tile_zero(1);
      _tile_loadd(5, q + 32, stride);
      _tile_loadd(7, w + P::kBytes, 64);
      _tile_dpbssd(1, 5, 7);
      _tile_stored(1, results + kTileBytes, 64);
    }
    if (count > 2) {
      _tile_zero(2);
      _tile_loadd(4, q + 64, stride);
      _tile_loadd(6, w + 2 * P::kBytes, 64);
      _tile_dpbssd(2, 4, 6);
      _tile_stored(2, results + 2 * kTileBytes, 64);
    }
    if (count > 3) {
      _tile_zero(3);
      _tile_loadd(5, q + 96, stride);
      _tile_loadd(7, w + 3 * P::kBytes, 64);
      _tile_dpbssd(3, 5, 7);
      _tile_stored(3, results + 3 * kTileBytes, 64);
    }
    memory_barrier();
    for (int64_t i = 0; i < count; ++i) {
      const __m512 dw = _mm512_loadu_ps(floats(w + i * P::kBytes + P::kD));
      for (int t = 0; t < kTileTokens; ++t) {
        const __m512 dx = _mm512_set1_ps(d[t * d_stride + b + i]);
        sums[t] = chain_512(sums[t], load_512(results + i * kTileBytes + 64 * t), dw, dx);
      }
    }
  }
  if constexpr (kFormat.minimums) {
    __m512 minimums[kTileTokens] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const __m512 m = _mm512_loadu_ps(floats(panel + b * P::kBytes + P::kM));
      for (int t = 0; t < kTileTokens; ++t) {
        const __m512i sum = _mm512_set1_epi32(first.sums[t * d_stride + b]);
        minimums[t] = chain_512(minimums[t], sum, m, _mm512_set1_ps(d[t * d_stride + b]));
      }
    }
    for (int t = 0; t < kTileTokens; ++t) sums[t] = _mm512_add_ps(sums[t], minimums[t]);
  }
  for (int t = 0; t < kTileTokens && token + t < task.tokens; ++t) put_panel_rows(task, token + t, row, sums[t]);
}

// ---- blocks of 256

// kTiles (1 or 2) tiles of tokens from `token`. results: kTileResults tiles; sums: [32][16] main, [32][16] minimum.
template <InterleavedFormat kFormat, int kTiles>
inline void amx_tokens_256(const LinearTask& task, const uint8_t* panel, int64_t row, int64_t token, uint8_t* results,
                           float* sums) {
  using P = AmxPanel<kFormat>;
  constexpr bool kHigh = P::kPlanes == 2;
  constexpr int kTokens = kTiles * static_cast<int>(kTileTokens);
  const int64_t blocks = task.k / 256;
  const int64_t stride = row_bytes_256(task.k);
  const Row256 first = row_256(task.activations, token, task.k);
  float* minimums = sums + 2 * kTileTokens * kPanelRows;
  for (int64_t i = 0; i < 4 * kTileTokens * kPanelRows; i += 16) _mm512_storeu_ps(sums + i, _mm512_setzero_ps());
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* block = panel + b * P::kBytes;
    memory_barrier();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < 4; ++i) {
      const int8_t* q = first.q + b * 256 + 64 * i;
      _tile_loadd(4, q, stride);
      _tile_loadd(6, block + kTileBytes * i, 64);
      _tile_dpbssd(0, 4, 6);
      if constexpr (kHigh) {
        _tile_loadd(7, block + P::kPlaneBytes + kTileBytes * i, 64);
        _tile_dpbssd(1, 4, 7);
      }
      if constexpr (kTiles == 2) {
        _tile_loadd(5, q + kTileTokens * stride, stride);
        _tile_dpbssd(2, 5, 6);
        if constexpr (kHigh) _tile_dpbssd(3, 5, 7);
      }
    }
    _tile_stored(0, results, 64);
    _tile_stored(1, results + kTileBytes, 64);
    _tile_stored(2, results + 2 * kTileBytes, 64);
    _tile_stored(3, results + 3 * kTileBytes, 64);
    memory_barrier();
    const __m512 d = _mm512_loadu_ps(floats(block + P::kD));
    for (int t = 0; t < kTokens; ++t) {
      const Row256 x = row_256(task.activations, token + t, task.k);
      const __m512 dx = _mm512_set1_ps(x.d[b]);
      const uint8_t* tile = results + t / kTileTokens * 2 * kTileBytes + t % kTileTokens * 64;
      __m512i isum = load_512(tile);
      if constexpr (kHigh) isum = _mm512_add_epi32(isum, _mm512_slli_epi32(load_512(tile + kTileBytes), 7));
      float* sum = sums + t * kPanelRows;
      _mm512_storeu_ps(sum, chain_512(_mm512_loadu_ps(sum), isum, d, dx));
      if constexpr (kFormat.minimums) {
        const __m512 m = _mm512_loadu_ps(floats(block + P::kM));
        const __m512i msum = minimum_dot_512<kFormat>(block + P::kMins, x.sums[b]);
        float* minimum = minimums + t * kPanelRows;
        _mm512_storeu_ps(minimum, chain_512(_mm512_loadu_ps(minimum), msum, m, dx));
      }
    }
  }
  for (int t = 0; t < kTokens && token + t < task.tokens; ++t) {
    __m512 product = _mm512_loadu_ps(sums + t * kPanelRows);
    if constexpr (kFormat.minimums) product = _mm512_sub_ps(product, _mm512_loadu_ps(minimums + t * kPanelRows));
    put_panel_rows(task, token + t, row, product);
  }
}

// ---- all

inline constexpr int64_t kAmxResultBytes = kTileResults * kTileBytes;
inline constexpr int64_t kAmxSumBytes = 4 * kTileTokens * kPanelRows * 4;

template <InterleavedFormat kFormat>
inline int64_t amx_scratch(int64_t k, int64_t tokens) {
  if (tokens < kAmxTokens) return gemm_scratch<kFormat>(k, tokens);
  return kAmxResultBytes + kAmxSumBytes + k / kFormat.block * AmxPanel<kFormat>::kBytes;
}

template <InterleavedFormat kFormat>
inline void run_amx(const LinearTask& task) noexcept {
  if (task.tokens < kAmxTokens) return run_gemm<kFormat>(task);
  auto* results = static_cast<uint8_t*>(task.scratch);
  uint8_t* sums = results + kAmxResultBytes;
  uint8_t* panel = sums + kAmxSumBytes;
  configure_tiles(kFormat.block == 32 ? 32 : 64);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    for_panel_blocks<kFormat>(task, row, [panel](const uint8_t* block, int half, int64_t b) {
      unpack_amx_panel<kFormat>(block, half, panel + b * AmxPanel<kFormat>::kBytes);
    });
    for (int64_t t = 0; t < task.tokens;) {
      if constexpr (kFormat.block == 32) {
        amx_tokens_32<kFormat>(task, panel, row, t, results);
        t += kTileTokens;
      } else {
        auto* floats_of = static_cast<float*>(static_cast<void*>(sums));
        if (task.tokens - t > kTileTokens) {
          amx_tokens_256<kFormat, 2>(task, panel, row, t, results, floats_of);
          t += 2 * kTileTokens;
        } else {
          amx_tokens_256<kFormat, 1>(task, panel, row, t, results, floats_of);
          t += kTileTokens;
        }
      }
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace inferno
