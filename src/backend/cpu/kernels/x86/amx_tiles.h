// The matrix tiles: their shapes, and the activations in the order they are read.
//
// Kernels use at most seven of the eight tiles, better four: to run tile instructions ahead of each other a core needs
// free tile registers, of which a busy hardware thread beside this one leaves few. A kernel with eight tiles then takes
// up to three times as long (docs/decisions/x86-amx.md).
#pragma once

#include "backend/cpu/kernels/x86/activations.h"

namespace inferno {
namespace {

inline constexpr int64_t kTileTokens = 16;
// Tiles from this many tokens on: below, half of them would be empty, and blocks of 32 are multiplied in registers.
template <int kBlock>
inline constexpr int64_t kAmxTokens = kBlock == 32 ? 17 : 8;
static_assert(kAmxTokens<32> <= 32 && kAmxTokens<256> <= 32);  // the least tokens of a block
inline constexpr int64_t kTileBytes = 1024;
// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

inline void load_tile_config(const TileConfig& config) {
  // Some compilers' intrinsic declares only the first bytes as read.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// Tiles 0-3 collect sums; those from 4 on are left sides of `depth` bytes a row, those from `first_right` on right
// sides. Left sides and sums have `rows` rows.
inline void configure_tiles(int depth, int rows = kTileTokens, int first_right = 6) {
  TileConfig config = {};
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    const bool right = i >= first_right;
    config.rows[i] = static_cast<uint8_t>(right ? depth / 4 : rows);
    config.row_bytes[i] = static_cast<uint16_t>(i < 4 || right ? 64 : depth);
  }
  load_tile_config(config);
}

// A compiler barrier: not every tile intrinsic tells the compiler which memory it reads and writes.
inline void memory_barrier() {
  __asm__ volatile("" : : : "memory");
}

// ---- activations
// Few tokens: rows, as the other kernels read them. From kFrom on: tiles of 16 tokens, the last one padded with
// zero tokens; in a tile one block after another, all that a product of a block needs contiguous.

template <int kBlock>
struct TokenTile;
template <>
struct TokenTile<32> {
  static constexpr int kD = 16 * 32;         // after int8 q[16][32]: f32[16]
  static constexpr int kSums = kD + 64;      // int32[16]
  static constexpr int kBytes = kSums + 64;  // of one block
};
template <>
struct TokenTile<256> {
  static constexpr int kD = 16 * 256;            // after int8 q[4][16][64]: f32[16]
  static constexpr int kSums32 = kD + 64;        // int16[16][8], over 32 columns
  static constexpr int kSums16 = kSums32 + 256;  // int16[16][16], over 16 columns
  static constexpr int kBytes = kSums16 + 512;
};

template <int kBlock>
inline int64_t token_tile_bytes(int64_t k) {
  return k / kBlock * TokenTile<kBlock>::kBytes;
}
inline int64_t token_tiles(int64_t tokens) {
  return (tokens + kTileTokens - 1) / kTileTokens;
}

template <typename T>
inline T* as(uint8_t* p) {
  return static_cast<T*>(static_cast<void*>(p));
}

// Lane i of the result: f over all lanes of v[i]. f is associative and commutative (a maximum, an integer sum).
template <typename F>
inline __m512i reduce_16(__m512i (&v)[16], F f) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // lane 2 j + h of v[i]: half of the rest of v[2 i + h]
    v[i] = f(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[i] = f(_mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]));
  }
  // Now each 128-bit lane of v[i] holds a part of the vectors 4 i ... 4 i + 3.
  const __m512i low = f(_mm512_shuffle_i32x4(v[0], v[1], 0x88), _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
  const __m512i high = f(_mm512_shuffle_i32x4(v[2], v[3], 0x88), _mm512_shuffle_i32x4(v[2], v[3], 0xdd));
  return f(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xdd));
}

// Up to 16 blocks of 32 columns at x -> row `row` of a tile, from `block` on.
inline void pack_blocks_32(const float* x, int64_t count, uint8_t* block, int64_t row) {
  using Tile = TokenTile<32>;
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i v[16];
#pragma GCC unroll 16
  for (int b = 0; b < 16; ++b) {
    v[b] = _mm512_setzero_si512();
    if (b < count) {
      v[b] = _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x + 32 * b), magnitude),
                              _mm512_and_si512(_mm512_loadu_si512(x + 32 * b + 16), magnitude));
    }
  }
  const __m512i amax = reduce_16(v, [](__m512i a, __m512i b) { return _mm512_max_epu32(a, b); });
  const __m512 d = _mm512_div_ps(_mm512_castsi512_ps(amax), _mm512_set1_ps(127.0F));
  const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0F), d);
  const __mmask16 wanted = static_cast<__mmask16>((1U << count) - 1U);
  // A scale or its inverse is not finite: the blocks one by one.
  const __m512i infinity = _mm512_set1_epi32(0x7f800000);
  const __mmask16 odd = _mm512_mask_cmpge_epu32_mask(wanted, amax, infinity) |
                        _mm512_mask_cmpge_epu32_mask(wanted, _mm512_castps_si512(inverse), infinity);
  if (odd != 0) {
    for (int64_t b = 0; b < count; ++b, x += 32, block += Tile::kBytes) {
      alignas(32) int8_t q[32];
      as<float>(block + Tile::kD)[row] = quantize_block<32>(x, q);
      const TwoSums two = sums_16(q);
      store_256(block + 32 * row, load_256(q));
      as<int32_t>(block + Tile::kSums)[row] = two.first + two.second;
    }
    return;
  }
  alignas(64) float scales[2][16];
  _mm512_store_ps(scales[0], d);
  _mm512_store_ps(scales[1], inverse);
#pragma GCC unroll 16
  for (int b = 0; b < 16; ++b) {
    v[b] = _mm512_setzero_si512();
    if (b < count) {
      const __m512 factor = _mm512_set1_ps(scales[1][b]);
      const __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 32 * b), factor));
      const __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 32 * b + 16), factor));
      uint8_t* to = block + b * Tile::kBytes;
      store_256(to + 32 * row, _mm256_setr_m128i(_mm512_cvtepi32_epi8(low), _mm512_cvtepi32_epi8(high)));
      as<float>(to + Tile::kD)[row] = scales[0][b];
      v[b] = _mm512_add_epi32(low, high);
    }
  }
  alignas(64) int32_t sums[16];
  _mm512_store_si512(sums, reduce_16(v, [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }));
  for (int64_t b = 0; b < count; ++b) as<int32_t>(block + b * Tile::kBytes + Tile::kSums)[row] = sums[b];
}

// 256 columns at x -> row `row` of a block of a tile.
inline void pack_block_256(const float* x, uint8_t* block, int64_t row) {
  using Tile = TokenTile<256>;
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i top[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int i = 0; i < 16; ++i) {
    top[i % 2] = _mm512_max_epu32(top[i % 2], _mm512_and_si512(_mm512_loadu_si512(x + 16 * i), magnitude));
  }
  const __m512i most = _mm512_max_epu32(top[0], top[1]);
  const __m256i high = _mm256_castps_si256(_mm512_extractf32x8_ps(_mm512_castsi512_ps(most), 1));
  const BlockScale scale = block_scale(largest_u32(_mm256_max_epu32(_mm512_castsi512_si256(most), high)));
  as<float>(block + Tile::kD)[row] = scale.d;
  const __m512 factor = _mm512_set1_ps(scale.inverse);
  __m512i v[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    v[i] = _mm512_setzero_si512();
    if (scale.usable) v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), factor));
    store_128(block + i / 4 * kTileBytes + 64 * row + i % 4 * 16, _mm512_cvtepi32_epi8(v[i]));
  }
  const __m256i sums_16 =
      _mm512_cvtepi32_epi16(reduce_16(v, [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }));
  store_256(block + Tile::kSums16 + 32 * row, sums_16);
  const __m256i sums_32 = _mm256_madd_epi16(sums_16, _mm256_set1_epi16(1));
  store_128(block + Tile::kSums32 + 16 * row,
            _mm_packs_epi32(_mm256_castsi256_si128(sums_32), _mm256_extracti128_si256(sums_32, 1)));
}

// Columns [begin, end), of which x is the first, -> row `row` of a tile.
template <int kBlock>
inline void pack_token(const float* x, int64_t begin, int64_t end, uint8_t* tile, int64_t row) {
  using Tile = TokenTile<kBlock>;
  const int64_t count = (end - begin) / kBlock;
  uint8_t* first = tile + begin / kBlock * Tile::kBytes;
  if constexpr (kBlock == 32) {
    for (int64_t b = 0; b < count; b += 16) {
      pack_blocks_32(x + b * 32, count - b < 16 ? count - b : 16, first + b * Tile::kBytes, row);
    }
  } else {
    for (int64_t b = 0; b < count; ++b) pack_block_256(x + b * 256, first + b * Tile::kBytes, row);
  }
}

// The same of a token of zeros.
template <int kBlock>
inline void pack_zero_token(int64_t begin, int64_t end, uint8_t* tile, int64_t row) {
  using Tile = TokenTile<kBlock>;
  for (int64_t b = begin / kBlock; b < end / kBlock; ++b) {
    uint8_t* block = tile + b * Tile::kBytes;
    as<float>(block + Tile::kD)[row] = 0;
    if constexpr (kBlock == 32) {
      store_256(block + 32 * row, _mm256_setzero_si256());
      as<int32_t>(block + Tile::kSums)[row] = 0;
    } else {
      for (int i = 0; i < 4; ++i) _mm512_storeu_si512(block + i * kTileBytes + 64 * row, _mm512_setzero_si512());
      for (int i = 0; i < 8; ++i) as<int16_t>(block + Tile::kSums32)[8 * row + i] = 0;
      for (int i = 0; i < 16; ++i) as<int16_t>(block + Tile::kSums16)[16 * row + i] = 0;
    }
  }
}

template <int kBlock, int64_t kFrom = kAmxTokens<kBlock>>
inline int64_t tiled_bytes(int64_t tokens, int64_t k) {
  return tokens < kFrom ? rows_bytes<kBlock>(tokens, k) : token_tiles(tokens) * token_tile_bytes<kBlock>(k);
}
template <int kBlock>
inline void prepare_tile_columns(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin,
                                 int64_t end, int64_t col_begin, int64_t col_end, void* buffer) noexcept {
  const int64_t filled = end < tokens ? end : token_tiles(tokens) * kTileTokens;
  for (int64_t t = begin; t < filled; ++t) {
    uint8_t* tile = static_cast<uint8_t*>(buffer) + t / kTileTokens * token_tile_bytes<kBlock>(k);
    if (t < tokens) {
      pack_token<kBlock>(x + (t - begin) * x_stride, col_begin, col_end, tile, t % kTileTokens);
    } else {
      pack_zero_token<kBlock>(col_begin, col_end, tile, t % kTileTokens);
    }
  }
}
template <int kBlock, int64_t kFrom = kAmxTokens<kBlock>>
inline void prepare_tiles(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                          void* buffer) noexcept {
  if (tokens < kFrom) return prepare_rows<kBlock>(x, x_stride, tokens, k, begin, end, buffer);
  prepare_tile_columns<kBlock>(x + begin * x_stride, x_stride, tokens, k, begin, end, 0, k, buffer);
}
template <int kBlock>
inline int64_t tiles_offset(int64_t token, int64_t k) {
  return token / kTileTokens * token_tile_bytes<kBlock>(k);
}
// kTokens: of a block. Rows that are unpacked are so once for each block.
template <int kBlock, int64_t kFrom = kAmxTokens<kBlock>, int64_t kTokens = 256>
inline constexpr ActivationLayout kTokenTiles = {kBlock == 32 ? "8 bits per 32, tiles" : "8 bits per 256, tiles",
                                                 1,
                                                 tiled_bytes<kBlock, kFrom>,
                                                 prepare_tiles<kBlock, kFrom>,
                                                 kBlock,
                                                 prepare_columns<kBlock>,
                                                 kTokens,
                                                 tiles_offset<kBlock>,
                                                 prepare_tile_columns<kBlock>};

}  // namespace
}  // namespace inferno
