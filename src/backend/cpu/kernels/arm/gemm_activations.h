// Activations for the matrix kernels: rows for up to three tokens (activations.h), else tiles of four tokens in the
// order the 8-bit matrix instruction reads them. The last tile is filled up with zero tokens.
//
// A "pair" vector holds two tokens: 8 columns of the first, 8 columns of the second.
//   blocks of 32:   per block 160 bytes: for each 8 columns the pairs (0,1) and (2,3); then d as (d0 d1 d0 d1),
//                   (d2 d3 d2 d3). After all blocks 32 bytes per block: the sums of q as f32 in the same order as d.
//   blocks of 256:  per block 1248 bytes: for each 8 columns the two pairs (1024); d as above (32); the sums over 32
//                   columns as two pairs of 8 high parts and two pairs of 8 low parts (64); the sums over 16 columns
//                   the same for columns 0-127, then for 128-255 (128).
#pragma once

#include "backend/cpu/kernels/arm/activations.h"

namespace inferno {
namespace {

inline constexpr int64_t kTileTokens = 4;
inline constexpr int64_t kGemmTokens = 4;  // tiles from this many tokens on
inline constexpr int64_t kTileBlock32 = 160;
inline constexpr int64_t kTileBlock256 = 1248;
inline constexpr int64_t kTileD256 = 1024;
inline constexpr int64_t kTileSums32 = 1056;
inline constexpr int64_t kTileSums16 = 1120;

inline int64_t tile_bytes_32(int64_t k) {
  return k / 32 * (kTileBlock32 + 32);
}
inline int64_t tile_bytes_256(int64_t k) {
  return k / 256 * kTileBlock256;
}
inline int64_t token_tiles(int64_t tokens) {
  return (tokens + kTileTokens - 1) / kTileTokens;
}

inline int64_t tiles_bytes_32(int64_t tokens, int64_t k) {
  if (tokens < kGemmTokens) return rows_bytes_32(tokens, k);
  return (token_tiles(tokens) * tile_bytes_32(k) + 63) / 64 * 64;
}
inline int64_t tiles_bytes_256(int64_t tokens, int64_t k) {
  if (tokens < kGemmTokens) return rows_bytes_256(tokens, k);
  return (token_tiles(tokens) * tile_bytes_256(k) + 63) / 64 * 64;
}

// Where the columns of token t of a tile go: 8 bytes every 32.
inline void put_columns(const int8_t* q, int count, int64_t t, int8_t* tile) {
  int8_t* to = tile + t / 2 * 16 + t % 2 * 8;
  for (int i = 0; i < count; i += 8) vst1_s8(to + 4 * i, vld1_s8(q + i));
}
inline void put_pair(float value, int64_t t, int8_t* pairs) {
  auto* to = static_cast<float*>(static_cast<void*>(pairs)) + t / 2 * 4 + t % 2;
  to[0] = value;
  to[2] = value;
}

inline void quantize_into_tile_32(const float* x, int64_t k, int64_t t, int8_t* tile) {
  int8_t* sums = tile + k / 32 * kTileBlock32;
  for (int64_t b = 0; b < k / 32; ++b) {
    int8_t q[32] = {};
    const float d = x == nullptr ? 0.0F : quantize_block<32>(x + b * 32, q);
    int8_t* block = tile + b * kTileBlock32;
    put_columns(q, 32, t, block);
    put_pair(d, t, block + 128);
    put_pair(static_cast<float>(sum_16(q) + sum_16(q + 16)), t, sums + b * 32);
  }
}

inline void quantize_into_tile_256(const float* x, int64_t k, int64_t t, int8_t* tile) {
  for (int64_t b = 0; b < k / 256; ++b) {
    int8_t q[256] = {};
    int8_t sums[kSumBytes];
    const float d = x == nullptr ? 0.0F : quantize_block<256>(x + b * 256, q);
    split_sums(q, sums);
    int8_t* block = tile + b * kTileBlock256;
    put_columns(q, 256, t, block);
    put_pair(d, t, block + kTileD256);
    put_columns(sums, 16, t, block + kTileSums32);  // 8 high parts, 8 low parts
    int8_t ordered[32];
    vst1_s8(ordered, vld1_s8(sums + 16));
    vst1_s8(ordered + 8, vld1_s8(sums + 32));
    vst1_s8(ordered + 16, vld1_s8(sums + 24));
    vst1_s8(ordered + 24, vld1_s8(sums + 40));
    put_columns(ordered, 32, t, block + kTileSums16);
  }
}

// Rows [begin, end), begin a multiple of the tile; the last rows also write the zero tokens behind them.
template <int kBlock>
inline void prepare_tiles(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                          void* buffer) noexcept {
  if (tokens < kGemmTokens) {
    (kBlock == 32 ? prepare_rows_32 : prepare_rows_256)(x, x_stride, tokens, k, begin, end, buffer);
    return;
  }
  const int64_t last = end == tokens ? token_tiles(tokens) * kTileTokens : end;
  const int64_t bytes = kBlock == 32 ? tile_bytes_32(k) : tile_bytes_256(k);
  for (int64_t t = begin; t < last; ++t) {
    int8_t* tile = static_cast<int8_t*>(buffer) + t / kTileTokens * bytes;
    const float* row = t < tokens ? x + t * x_stride : nullptr;
    (kBlock == 32 ? quantize_into_tile_32 : quantize_into_tile_256)(row, k, t % kTileTokens, tile);
  }
}

inline constexpr ActivationLayout kTiles32 = {"8 bits per 32, tiles", kTileTokens, tiles_bytes_32, prepare_tiles<32>};
inline constexpr ActivationLayout kTiles256 = {"8 bits per 256, tiles", kTileTokens, tiles_bytes_256,
                                               prepare_tiles<256>};

}  // namespace
}  // namespace inferno
