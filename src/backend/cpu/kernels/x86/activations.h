// Activations quantized to 8 bits (quant/activation.h has the contract; these write the same q, d and sums), one row
// after another: what every x86 kernel reads, whether it multiplies one token or many.
//
// In blocks of 32:   q int8[k], d f32[k / 32], sums int32[k / 32]
// In blocks of 256:  q int8[k], d f32[k / 256], BlockSums[k / 256]
#pragma once

#include <immintrin.h>

#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {
namespace {

// The sums of q over 16 and over 32 columns. In the shuffled ones each four are in the order 0, 2, 1, 3: that of the
// even and then the odd bytes of four minimums, widened to 16 bits and multiplied in pairs.
struct BlockSums {
  int32_t low_16[16];       // the sum in the low half, zero in the high half
  int16_t shuffled_32[8];   // over 32 columns
  int16_t shuffled_16[16];  // over 16 columns
  int16_t plain_32[8];
  int16_t plain_16[16];
};

inline int64_t row_bytes_32(int64_t k) {
  return (k + k / 32 * 8 + 63) / 64 * 64;
}
inline int64_t row_bytes_256(int64_t k) {
  return (k + k / 256 * static_cast<int64_t>(4 + sizeof(BlockSums)) + 63) / 64 * 64;
}

struct Row32 {
  int8_t* q;
  float* d;
  int32_t* sums;
};
struct Row256 {
  int8_t* q;
  float* d;
  BlockSums* sums;
};
inline Row32 row_32(const void* buffer, int64_t token, int64_t k) {
  auto* row = static_cast<int8_t*>(const_cast<void*>(buffer)) + token * row_bytes_32(k);
  auto* d = static_cast<float*>(static_cast<void*>(row + k));
  return {row, d, static_cast<int32_t*>(static_cast<void*>(d + k / 32))};
}
inline Row256 row_256(const void* buffer, int64_t token, int64_t k) {
  auto* row = static_cast<int8_t*>(const_cast<void*>(buffer)) + token * row_bytes_256(k);
  auto* d = static_cast<float*>(static_cast<void*>(row + k));
  return {row, d, static_cast<BlockSums*>(static_cast<void*>(d + k / 256))};
}
template <int kBlock>
inline auto activation_row(const void* buffer, int64_t token, int64_t k) {
  if constexpr (kBlock == 32) {
    return row_32(buffer, token, k);
  } else {
    return row_256(buffer, token, k);
  }
}
template <int kBlock>
inline int64_t activation_row_bytes(int64_t k) {
  return kBlock == 32 ? row_bytes_32(k) : row_bytes_256(k);
}

inline __m256i load_256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline void store_256(void* p, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
inline __m128i load_128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
inline void store_128(void* p, __m128i v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), v);
}

inline uint32_t largest_u32(__m256i v) {
  __m128i top = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0x4e));
  top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(top));
}

// The scale of a block from the bits of its largest magnitude. All q are zero where it is not usable.
struct BlockScale {
  float d;
  float inverse;
  bool usable;
};
inline BlockScale block_scale(uint32_t amax_bits) {
  constexpr uint32_t kInfinity = 0x7f800000U;
  if (amax_bits >= kInfinity) return {__builtin_nanf(""), 0, false};
  float amax;
  __builtin_memcpy(&amax, &amax_bits, 4);
  const float d = amax / 127.0F;
  const float inverse = 1.0F / d;
  uint32_t inverse_bits;
  __builtin_memcpy(&inverse_bits, &inverse, 4);
  if ((inverse_bits & 0x7fffffffU) >= kInfinity) return {0, 0, false};
  return {d, inverse, true};
}

// x[kBlock] -> q[kBlock], the scale as result.
template <int kBlock>
inline float quantize_block(const float* x, int8_t* q) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i top[4] = {};
  for (int i = 0; i < kBlock; i += 32) {
    for (int j = 0; j < 4; ++j) {
      top[j] = _mm256_max_epu32(top[j], _mm256_and_si256(load_256(x + i + 8 * j), magnitude));
    }
  }
  const uint32_t bits =
      largest_u32(_mm256_max_epu32(_mm256_max_epu32(top[0], top[1]), _mm256_max_epu32(top[2], top[3])));
  const BlockScale scale = block_scale(bits);
  if (!scale.usable) {
    for (int i = 0; i < kBlock; i += 32) store_256(q + i, _mm256_setzero_si256());
    return scale.d;
  }
  const __m256 factor = _mm256_set1_ps(scale.inverse);
  // Packing works on 128-bit lanes; this puts the fours back in order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int i = 0; i < kBlock; i += 32) {
    __m256i v[4];
    for (int j = 0; j < 4; ++j) v[j] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * j), factor));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    store_256(q + i, _mm256_permutevar8x32_epi32(bytes, order));
  }
  return scale.d;
}

// Sums of the bytes 0-15 and 16-31.
struct TwoSums {
  int first;
  int second;
};
inline TwoSums sums_16(const int8_t* q) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), load_256(q));
  __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
  fours = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0xb1));
  return {_mm_cvtsi128_si32(_mm256_castsi256_si128(fours)), _mm_cvtsi128_si32(_mm256_extracti128_si256(fours, 1))};
}

inline void block_sums(const int8_t* q, BlockSums& sums) {
  // Sums of eight bytes with 128 added to each, in the low half of 64 bits.
  __m256i eights[8];
  for (int i = 0; i < 8; ++i) {
    const __m256i bytes = _mm256_xor_si256(load_256(q + 32 * i), _mm256_set1_epi8(-128));
    eights[i] = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
  }
  // Over 16 columns, in order, of the 128 columns from 32 * i on.
  const auto sixteens = [&](int i) {
    const __m256i first = _mm256_packs_epi32(eights[i], eights[i + 1]);
    const __m256i second = _mm256_packs_epi32(eights[i + 2], eights[i + 3]);
    const __m256i halves = _mm256_sub_epi32(_mm256_hadd_epi32(first, second), _mm256_set1_epi32(16 * 128));
    return _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  };
  const __m256i low = sixteens(0);
  const __m256i high = sixteens(4);
  const __m256i low_half = _mm256_set1_epi32(0xffff);
  store_256(sums.low_16, _mm256_and_si256(low, low_half));
  store_256(sums.low_16 + 8, _mm256_and_si256(high, low_half));
  // Packing works on 128-bit lanes.
  const __m256i plain_16 = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
  const __m256i pairs = _mm256_madd_epi16(plain_16, _mm256_set1_epi16(1));
  const __m128i plain_32 = _mm_packs_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  store_256(sums.plain_16, plain_16);
  store_128(sums.plain_32, plain_32);
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  store_256(sums.shuffled_16, _mm256_shuffle_epi8(plain_16, _mm256_broadcastsi128_si256(order)));
  store_128(sums.shuffled_32, _mm_shuffle_epi8(plain_32, order));
}

// Columns [begin, end) of a row of k.
template <int kBlock>
inline void quantize_columns(const float* x, int64_t k, int64_t begin, int64_t end, void* buffer, int64_t token) {
  const auto row = activation_row<kBlock>(buffer, token, k);
  for (int64_t b = begin / kBlock; b < end / kBlock; ++b) {
    int8_t* q = row.q + b * kBlock;
    row.d[b] = quantize_block<kBlock>(x + b * kBlock, q);
    if constexpr (kBlock == 32) {
      const TwoSums two = sums_16(q);
      row.sums[b] = two.first + two.second;
    } else {
      block_sums(q, row.sums[b]);
    }
  }
}

template <int kBlock>
inline int64_t rows_bytes(int64_t tokens, int64_t k) {
  return tokens * activation_row_bytes<kBlock>(k);
}
template <int kBlock>
inline void prepare_rows(const float* x, int64_t x_stride, int64_t /*tokens*/, int64_t k, int64_t begin, int64_t end,
                         void* buffer) noexcept {
  for (int64_t t = begin; t < end; ++t) quantize_columns<kBlock>(x + t * x_stride, k, 0, k, buffer, t);
}

template <int kBlock>
inline void prepare_columns(const float* x, int64_t k, int64_t begin, int64_t end, void* buffer) noexcept {
  quantize_columns<kBlock>(x, k, begin, end, buffer, 0);
}

template <int kBlock>
inline constexpr ActivationLayout kRows = {kBlock == 32 ? "8 bits per 32, rows" : "8 bits per 256, rows",
                                           1,
                                           rows_bytes<kBlock>,
                                           prepare_rows<kBlock>,
                                           kBlock,
                                           prepare_columns<kBlock>};

}  // namespace
}  // namespace inferno
