// The matrix tiles: their shapes, and the activations in the order they are read.
#pragma once

#include "backend/cpu/kernels/x86/activations.h"

namespace inferno {
namespace {

inline constexpr int64_t kTileTokens = 16;
inline constexpr int64_t kAmxTokens = 8;  // tiles from this many tokens on: below, half of them would be empty
inline constexpr int64_t kTileBytes = 1024;
// Blocks of 32 columns are multiplied four at a time, each into a tile of its own.
inline constexpr int64_t kTileGroup = 4;

inline constexpr int64_t whole_groups(int64_t blocks) {
  return (blocks + kTileGroup - 1) / kTileGroup * kTileGroup;
}

// What the instruction that configures the tiles reads.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// Tiles 0-3 collect sums, 4 and 5 are left sides of `depth` bytes a row, 6 and 7 right sides.
inline void configure_tiles(int depth) {
  TileConfig config = {};
  config.palette = 1;
  for (int i = 0; i < 4; ++i) {
    config.rows[i] = kTileTokens;
    config.row_bytes[i] = 64;
  }
  for (int i = 4; i < 6; ++i) {
    config.rows[i] = kTileTokens;
    config.row_bytes[i] = static_cast<uint16_t>(depth);
  }
  for (int i = 6; i < 8; ++i) {
    config.rows[i] = static_cast<uint8_t>(depth / 4);
    config.row_bytes[i] = 64;
  }
  // The intrinsic of some compilers names only the first bytes as read.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// What tiles read must have been written before: the compiler is not told by every intrinsic.
inline void memory_barrier() {
  __asm__ volatile("" : : : "memory");
}

// ---- activations
// Few tokens: rows, as the other kernels read them. From kAmxTokens on: tiles of 16 tokens, the last one filled up with
// zero tokens; in a tile one block after another, all that a product of it needs side by side.

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
  const int64_t blocks = k / kBlock;
  return (kBlock == 32 ? whole_groups(blocks) : blocks) * TokenTile<kBlock>::kBytes;
}
inline int64_t token_tiles(int64_t tokens) {
  return (tokens + kTileTokens - 1) / kTileTokens;
}

template <typename T>
inline T* as(uint8_t* p) {
  return static_cast<T*>(static_cast<void*>(p));
}

// x[k] -> row `row` of a tile; x null: a token of zeros.
template <int kBlock>
inline void put_token(const float* x, int64_t k, uint8_t* tile, int64_t row) {
  using Tile = TokenTile<kBlock>;
  for (int64_t b = 0; b < k / kBlock; ++b) {
    uint8_t* block = tile + b * Tile::kBytes;
    alignas(64) int8_t q[kBlock] = {};
    as<float>(block + Tile::kD)[row] = x == nullptr ? 0.0F : quantize_block<kBlock>(x + b * kBlock, q);
    if constexpr (kBlock == 32) {
      const TwoSums two = sums_16(q);
      store_256(block + 32 * row, load_256(q));
      as<int32_t>(block + Tile::kSums)[row] = two.first + two.second;
    } else {
      for (int i = 0; i < 8; ++i) {
        const TwoSums two = sums_16(q + 32 * i);
        store_256(block + i / 2 * kTileBytes + 64 * row + i % 2 * 32, load_256(q + 32 * i));
        as<int16_t>(block + Tile::kSums32)[8 * row + i] = static_cast<int16_t>(two.first + two.second);
        as<int16_t>(block + Tile::kSums16)[16 * row + 2 * i] = static_cast<int16_t>(two.first);
        as<int16_t>(block + Tile::kSums16)[16 * row + 2 * i + 1] = static_cast<int16_t>(two.second);
      }
    }
  }
}

template <int kBlock>
inline int64_t tiled_bytes(int64_t tokens, int64_t k) {
  return tokens < kAmxTokens ? rows_bytes<kBlock>(tokens, k) : token_tiles(tokens) * token_tile_bytes<kBlock>(k);
}
template <int kBlock>
inline void prepare_tiles(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                          void* buffer) noexcept {
  if (tokens < kAmxTokens) return prepare_rows<kBlock>(x, x_stride, tokens, k, begin, end, buffer);
  const int64_t filled = end < tokens ? end : token_tiles(tokens) * kTileTokens;
  for (int64_t t = begin; t < filled; ++t) {
    uint8_t* tile = static_cast<uint8_t*>(buffer) + t / kTileTokens * token_tile_bytes<kBlock>(k);
    put_token<kBlock>(t < tokens ? x + t * x_stride : nullptr, k, tile, t % kTileTokens);
  }
}
template <int kBlock>
inline constexpr ActivationLayout kTokenTiles = {kBlock == 32 ? "8 bits per 32, tiles" : "8 bits per 256, tiles", 1,
                                                 tiled_bytes<kBlock>, prepare_tiles<kBlock>};

}  // namespace
}  // namespace inferno
