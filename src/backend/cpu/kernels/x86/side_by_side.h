// Quantized activations of several tokens side by side, as products with panels read them: the same four columns of all
// tokens of a tile are contiguous.
//
// Few tokens: rows (activations.h). From kSideTokens on: tiles of kSideWidth tokens, the last one narrower and filled
// up with zero tokens. In a tile of n tokens, for each block of columns:
//   columns  for each four columns, for each token: int8[4]; in words: int16[2] of the columns 0 and 2, later those of
//            1 and 3
//   d        f32[n]
//   sums     blocks of 32: int32[n]. Blocks of 256: for each 64 columns, for each token: int16[2], the sums over 32;
//            then the same for each 32 columns, over 16
#pragma once

#include "backend/cpu/kernels/x86/gemv.h"

namespace inferno {
namespace {

// Tiles have as many tokens as their sums with 16 rows fit the registers. kSideTokens: from here on unpacking a panel
// costs less than passing over the weights again for every four tokens.
#if defined(__AVX512F__)
inline constexpr int64_t kSideWidth = 12;
inline constexpr int64_t kSideStep = 4;  // a tile's width is a multiple of this
inline constexpr int64_t kSideTokens = 6;
#else
inline constexpr int64_t kSideWidth = 4;
inline constexpr int64_t kSideStep = 2;
inline constexpr int64_t kSideTokens = 8;
#endif
static_assert(kSideTokens > kPrefetchTokens);

// Of one block and token.
template <int kBlock, bool kWords>
struct SideBlock {
  static constexpr int kD = kBlock * (kWords ? 2 : 1);
  static constexpr int kSums = kD + 4;        // blocks of 256: over 32 columns
  static constexpr int kSums16 = kSums + 16;  // over 16
  static constexpr int kBytes = kBlock == 32 ? kSums + 4 : kSums16 + 32;
};
template <int kBlock, bool kWords>
inline int64_t side_token_bytes(int64_t k) {
  return k / kBlock * SideBlock<kBlock, kWords>::kBytes;
}

// Of the tile that begins with token `first`, and all tiles together.
template <int64_t kWidth = kSideWidth>
inline int64_t side_width(int64_t tokens, int64_t first) {
  const int64_t rest = tokens - first;
  return rest >= kWidth ? kWidth : (rest + kSideStep - 1) / kSideStep * kSideStep;
}
inline int64_t side_filled(int64_t tokens) {
  return (tokens + kSideStep - 1) / kSideStep * kSideStep;
}

template <int kBlock, bool kWords, int64_t kFrom>
inline int64_t side_bytes(int64_t tokens, int64_t k) {
  if (tokens < kFrom) return rows_bytes<kBlock>(tokens, k);
  return (side_filled(tokens) * side_token_bytes<kBlock, kWords>(k) + 63) / 64 * 64;
}

inline void put_four(uint8_t* to, const void* four_bytes) {
  __builtin_memcpy(to, four_bytes, 4);
}

// x[kBlock], or zeros where x is null -> token `i` of a block of a tile of `width` tokens.
template <int kBlock, bool kWords>
inline void put_block(const float* x, uint8_t* block, int64_t width, int64_t i) {
  using Side = SideBlock<kBlock, kWords>;
  alignas(32) int8_t q[kBlock] = {};
  const float d = x == nullptr ? 0.0F : quantize_block<kBlock>(x, q);
  for (int c = 0; c < kBlock; c += 32) {
    if constexpr (kWords) {
      alignas(32) int8_t words[2][32];
      const __m256i v = load_256(q + c);
      store_256(words[0], _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
      store_256(words[1], _mm256_srai_epi16(v, 8));
      for (int j = 0; j < 16; ++j) put_four(block + ((c / 2 + j) * width + i) * 4, words[j % 2] + j / 2 * 4);
    } else {
      for (int j = 0; j < 8; ++j) put_four(block + ((c / 4 + j) * width + i) * 4, q + c + 4 * j);
    }
  }
  put_four(block + Side::kD * width + 4 * i, &d);
  if constexpr (kBlock == 32) {
    const TwoSums two = sums_16(q);
    const int32_t sum = two.first + two.second;
    put_four(block + Side::kSums * width + 4 * i, &sum);
  } else {
    BlockSums sums;
    block_sums(q, sums);
    for (int j = 0; j < 4; ++j) put_four(block + Side::kSums * width + (j * width + i) * 4, sums.plain_32 + 2 * j);
    for (int j = 0; j < 8; ++j) put_four(block + Side::kSums16 * width + (j * width + i) * 4, sums.plain_16 + 2 * j);
  }
}

template <int kBlock, bool kWords, int64_t kFrom>
inline void prepare_side(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                         void* buffer) noexcept {
  if (tokens < kFrom) return prepare_rows<kBlock>(x, x_stride, tokens, k, begin, end, buffer);
  // With the last token also those that fill up its tile.
  const int64_t filled = end < tokens ? end : side_filled(tokens);
  for (int64_t t = begin; t < filled; ++t) {
    const int64_t first = t / kSideWidth * kSideWidth;
    const int64_t width = side_width(tokens, first);
    uint8_t* tile = static_cast<uint8_t*>(buffer) + first * side_token_bytes<kBlock, kWords>(k);
    for (int64_t b = 0; b < k / kBlock; ++b) {
      put_block<kBlock, kWords>(t < tokens ? x + t * x_stride + b * kBlock : nullptr,
                                tile + b * SideBlock<kBlock, kWords>::kBytes * width, width, t - first);
    }
  }
}

// kFrom: rows up to so many tokens.
template <int kBlock, bool kWords, int64_t kFrom = kSideTokens>
inline constexpr ActivationLayout kSide = {kBlock == 32 ? (kWords ? "16 bits per 32, tiles" : "8 bits per 32, tiles")
                                                        : (kWords ? "16 bits per 256, tiles" : "8 bits per 256, tiles"),
                                           1,
                                           side_bytes<kBlock, kWords, kFrom>,
                                           prepare_side<kBlock, kWords, kFrom>,
                                           kBlock,
                                           prepare_columns<kBlock>};

}  // namespace
}  // namespace inferno
