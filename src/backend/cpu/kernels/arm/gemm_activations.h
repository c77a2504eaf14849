// Activations for the matrix kernels: rows for up to three tokens (activations.h), else pairs of tokens in the order
// the 8-bit matrix instruction reads them, in tiles of three pairs; up to kFew tokens in tiles of two, so that two
// threads that prepare them do not write to the same cache lines. The last tile is padded with zero tokens.
//
// A pair is a sequence of vectors; a level vector holds 8 columns of the first token, then 8 of the second.
//   blocks of 32:   per block 4 level vectors, then d as (d0 d1 d0 d1). After all blocks one vector per block: the sums
//                   of q as f32 in the same order as d.
//   blocks of 256:  per block 32 level vectors; d as above; the sums over 32 columns as a pair of 8 high parts and a
//                   pair of 8 low parts; the sums over 16 columns the same for columns 0-127, then for 128-255.
// A kernel reads three pairs or more in lockstep. At addresses that differ by a multiple of 64 the loads would conflict
// in one bank of the cache, at a fraction of the speed: the pairs of a tile are interleaved vector by vector, and tiles
// of two pairs are padded by 32 bytes.
#pragma once

#include "backend/cpu/kernels/arm/activations.h"

namespace inferno {
namespace {

inline constexpr int64_t kGemmTokens = 4;  // pairs from this many tokens on
inline constexpr int kTilePairs = 3;       // pairs of a tile beyond kFew tokens

// Offsets inside a pair of a tile of kPairs.
template <int kPairs>
struct PairLayout {
  static constexpr int64_t kStep = 16 * kPairs;  // from one vector to the next
  static constexpr int64_t kBlock32 = 5 * kStep;
  static constexpr int64_t kD32 = 4 * kStep;
  static constexpr int64_t kBlock256 = 39 * kStep;
  static constexpr int64_t kD256 = 32 * kStep;
  static constexpr int64_t kSums32 = 33 * kStep;
  static constexpr int64_t kSums16 = 35 * kStep;
};
using TileLayout = PairLayout<kTilePairs>;
using FewLayout = PairLayout<2>;

// The tiles of `tokens` tokens, for a kernel that reads tiles of two pairs up to kFew tokens.
template <int64_t kFew>
inline int64_t tile_pairs(int64_t tokens) {
  return tokens <= kFew ? 2 : kTilePairs;
}
template <int64_t kFew>
inline int64_t token_tiles(int64_t tokens) {
  const int64_t in_a_tile = 2 * tile_pairs<kFew>(tokens);
  return (tokens + in_a_tile - 1) / in_a_tile;
}
template <int kBlock, int64_t kFew>
inline int64_t tile_bytes(int64_t tokens, int64_t k) {
  const int64_t bytes = 16 * tile_pairs<kFew>(tokens) * (kBlock == 32 ? k / 32 * 6 : k / 256 * 39);
  return tokens <= kFew ? (bytes + 63) / 64 * 64 + 32 : bytes;
}

template <int kBlock, int64_t kFew>
inline int64_t token_pairs_bytes(int64_t tokens, int64_t k) {
  if (tokens < kGemmTokens) return kBlock == 32 ? rows_bytes_32(tokens, k) : rows_bytes_256(tokens, k);
  return (token_tiles<kFew>(tokens) * tile_bytes<kBlock, kFew>(tokens, k) + 63) / 64 * 64;
}

// Columns of one token of a pair: 8 bytes of each vector. `step`: from one vector to the next.
inline void store_columns(const int8_t* q, int count, int8_t* pair, int64_t step) {
  for (int i = 0; i < count; i += 8) vst1_s8(pair + i / 8 * step, vld1_s8(q + i));
}
inline void store_twice(float value, int8_t* pair) {
  auto* to = static_cast<float*>(static_cast<void*>(pair));
  to[0] = value;
  to[2] = value;
}

// A row into one half (which = 0 or 1) of a pair; x null: a zero token.
inline void quantize_into_pair_32(const float* x, int64_t k, int64_t which, int8_t* pair, int64_t step) {
  const int64_t blocks = k / 32;
  const auto put = [&](int64_t b, int64_t count, const int8_t* q, const float* d, const float* sums) {
    for (int64_t i = 0; i < count; ++i) {
      int8_t* block = pair + (b + i) * 5 * step;
      store_columns(q + 32 * i, 32, block + 8 * which, step);
      store_twice(d[i], block + 4 * step + 4 * which);
      store_twice(sums[i], pair + (5 * blocks + b + i) * step + 4 * which);
    }
  };
  if (x != nullptr) return quantize_blocks_32(x, blocks, put);
  constexpr int8_t kLevels[32] = {};
  constexpr float kZero = 0;
  for (int64_t b = 0; b < blocks; ++b) put(b, 1, kLevels, &kZero, &kZero);
}

inline void quantize_into_pair_256(const float* x, int64_t k, int64_t which, int8_t* pair, int64_t step) {
  const auto put = [&](int64_t b, const int8_t* q, float d) {
    int8_t sums[kSumBytes];
    split_sums(q, sums);
    int8_t* block = pair + b * 39 * step;
    store_columns(q, 256, block + 8 * which, step);
    store_twice(d, block + 32 * step + 4 * which);
    store_columns(sums, 16, block + 33 * step + 8 * which, step);  // 8 high parts, 8 low parts
    int8_t by_16[32];
    vst1_s8(by_16, vld1_s8(sums + 16));
    vst1_s8(by_16 + 8, vld1_s8(sums + 32));
    vst1_s8(by_16 + 16, vld1_s8(sums + 24));
    vst1_s8(by_16 + 24, vld1_s8(sums + 40));
    store_columns(by_16, 32, block + 35 * step + 8 * which, step);
  };
  if (x != nullptr) return quantize_blocks_256(x, k / 256, put);
  constexpr int8_t kLevels[256] = {};
  for (int64_t b = 0; b < k / 256; ++b) put(b, kLevels, 0.0F);
}

// Rows [begin, end), begin even; the last rows also write the zero tokens after them.
template <int kBlock, int64_t kFew>
inline void prepare_token_pairs(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                                void* buffer) noexcept {
  if (tokens < kGemmTokens) {
    (kBlock == 32 ? prepare_rows_32 : prepare_rows_256)(x, x_stride, tokens, k, begin, end, buffer);
    return;
  }
  const int64_t pairs = tile_pairs<kFew>(tokens);
  const int64_t last = end == tokens ? token_tiles<kFew>(tokens) * 2 * pairs : end;
  for (int64_t t = begin; t < last; ++t) {
    const int64_t pair = t / 2;
    auto* to = static_cast<int8_t*>(buffer) + pair / pairs * tile_bytes<kBlock, kFew>(tokens, k) + pair % pairs * 16;
    const float* row = t < tokens ? x + t * x_stride : nullptr;
    (kBlock == 32 ? quantize_into_pair_32 : quantize_into_pair_256)(row, k, t % 2, to, 16 * pairs);
  }
}

template <int kBlock, int64_t kFew>
inline constexpr ActivationLayout kTokenPairs = {
    kBlock == 32 ? (kFew == 8 ? "8 bits per 32, pairs" : "8 bits per 32, fours") : "8 bits per 256, pairs", 2,
    token_pairs_bytes<kBlock, kFew>, prepare_token_pairs<kBlock, kFew>};

}  // namespace
}  // namespace inferno
