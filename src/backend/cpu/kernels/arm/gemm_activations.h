// Activations for the matrix kernels: rows for up to three tokens (activations.h), else pairs of tokens in the order
// the 8-bit matrix instruction reads them, in tiles of three pairs. The last tile is filled up with zero tokens.
//
// A pair is a sequence of vectors; a level vector holds 8 columns of the first token, then 8 of the second.
//   blocks of 32:   per block 4 level vectors, then d as (d0 d1 d0 d1). After all blocks one vector per block: the sums
//                   of q as f32 in the same order as d.
//   blocks of 256:  per block 32 level vectors; d as above; the sums over 32 columns as a pair of 8 high parts and a
//                   pair of 8 low parts; the sums over 16 columns the same for columns 0-127, then for 128-255.
// Three pairs, what a tile reads, are interleaved vector by vector: loaded from three places at the same distance they
// would meet in one bank of the cache, at a third of the speed.
#pragma once

#include "backend/cpu/kernels/arm/activations.h"

namespace inferno {
namespace {

inline constexpr int64_t kGemmTokens = 4;  // pairs from this many tokens on
inline constexpr int kTilePairs = 3;       // pairs that lie side by side
// Offsets inside a pair.
inline constexpr int64_t kPairStep = 16 * kTilePairs;  // from one vector to the next
inline constexpr int64_t kPairBlock32 = 5 * kPairStep;
inline constexpr int64_t kPairD32 = 4 * kPairStep;
inline constexpr int64_t kPairBlock256 = 39 * kPairStep;
inline constexpr int64_t kPairD256 = 32 * kPairStep;
inline constexpr int64_t kPairSums32 = 33 * kPairStep;
inline constexpr int64_t kPairSums16 = 35 * kPairStep;

template <int kBlock>
inline int64_t tile_bytes(int64_t k) {
  return kBlock == 32 ? k / 32 * (kPairBlock32 + kPairStep) : k / 256 * kPairBlock256;
}
// Where a pair begins in the buffer.
template <int kBlock>
inline int64_t pair_offset(int64_t pair, int64_t k) {
  return pair / kTilePairs * tile_bytes<kBlock>(k) + pair % kTilePairs * 16;
}
inline int64_t token_tiles(int64_t tokens) {
  return (tokens + 2 * kTilePairs - 1) / (2 * kTilePairs);
}

template <int kBlock>
inline int64_t token_pairs_bytes(int64_t tokens, int64_t k) {
  if (tokens < kGemmTokens) return kBlock == 32 ? rows_bytes_32(tokens, k) : rows_bytes_256(tokens, k);
  return (token_tiles(tokens) * tile_bytes<kBlock>(k) + 63) / 64 * 64;
}

// Columns of one token of a pair (which = 0 or 1): 8 bytes of each vector.
inline void put_columns(const int8_t* q, int count, int64_t which, int8_t* pair) {
  for (int i = 0; i < count; i += 8) vst1_s8(pair + 8 * which + i / 8 * kPairStep, vld1_s8(q + i));
}
inline void put_twice(float value, int64_t which, int8_t* pair) {
  auto* to = static_cast<float*>(static_cast<void*>(pair)) + which;
  to[0] = value;
  to[2] = value;
}

// x null: a zero token.
inline void quantize_into_pair_32(const float* x, int64_t k, int64_t which, int8_t* pair) {
  int8_t* sums = pair + k / 32 * kPairBlock32;
  for (int64_t b = 0; b < k / 32; ++b) {
    int8_t q[32] = {};
    const float d = x == nullptr ? 0.0F : quantize_block<32>(x + b * 32, q);
    int8_t* block = pair + b * kPairBlock32;
    put_columns(q, 32, which, block);
    put_twice(d, which, block + kPairD32);
    put_twice(static_cast<float>(sum_16(q) + sum_16(q + 16)), which, sums + b * kPairStep);
  }
}

inline void quantize_into_pair_256(const float* x, int64_t k, int64_t which, int8_t* pair) {
  for (int64_t b = 0; b < k / 256; ++b) {
    int8_t q[256] = {};
    int8_t sums[kSumBytes];
    const float d = x == nullptr ? 0.0F : quantize_block<256>(x + b * 256, q);
    split_sums(q, sums);
    int8_t* block = pair + b * kPairBlock256;
    put_columns(q, 256, which, block);
    put_twice(d, which, block + kPairD256);
    put_columns(sums, 16, which, block + kPairSums32);  // 8 high parts, 8 low parts
    int8_t by_16[32];
    vst1_s8(by_16, vld1_s8(sums + 16));
    vst1_s8(by_16 + 8, vld1_s8(sums + 32));
    vst1_s8(by_16 + 16, vld1_s8(sums + 24));
    vst1_s8(by_16 + 24, vld1_s8(sums + 40));
    put_columns(by_16, 32, which, block + kPairSums16);
  }
}

// Rows [begin, end), begin even; the last rows also write the zero tokens behind them.
template <int kBlock>
inline void prepare_token_pairs(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                                void* buffer) noexcept {
  if (tokens < kGemmTokens) {
    (kBlock == 32 ? prepare_rows_32 : prepare_rows_256)(x, x_stride, tokens, k, begin, end, buffer);
    return;
  }
  const int64_t last = end == tokens ? token_tiles(tokens) * 2 * kTilePairs : end;
  for (int64_t t = begin; t < last; ++t) {
    int8_t* pair = static_cast<int8_t*>(buffer) + pair_offset<kBlock>(t / 2, k);
    const float* row = t < tokens ? x + t * x_stride : nullptr;
    (kBlock == 32 ? quantize_into_pair_32 : quantize_into_pair_256)(row, k, t % 2, pair);
  }
}

template <int kBlock>
inline constexpr ActivationLayout kTokenPairs = {kBlock == 32 ? "8 bits per 32, pairs" : "8 bits per 256, pairs", 2,
                                                 token_pairs_bytes<kBlock>, prepare_token_pairs<kBlock>};

}  // namespace
}  // namespace inferno
