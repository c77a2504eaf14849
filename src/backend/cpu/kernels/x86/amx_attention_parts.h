// What attention with the matrix tiles is made of, whatever the number of queries.
#pragma once

#include "backend/cpu/kernels/x86/amx_tiles.h"
#include "backend/cpu/kernels/x86/attention.h"
#include "backend/cpu/kernels/x86/gemm.h"

namespace inferno {
namespace {

inline constexpr int64_t kTileDims = 32;       // of one product
inline constexpr int64_t kTilePositions = 16;  // rows of keys in a tile
inline constexpr int64_t kPairPositions = 32;  // positions of one product with values
inline constexpr float kLog2E = 0x1.715476p+0F;

// 2^t for t that is not above the rounding of 0, within 3 units in the last place; NaN stays NaN.
inline __m512 exp2_512(__m512 t) {
  // (With t on the right the larger one keeps NaN.)
  t = _mm512_max_ps(_mm512_set1_ps(-151.0F), t);
  const __m512 shift = _mm512_set1_ps(0x1.8p23F);  // adding it rounds to an integer
  const __m512 n = _mm512_sub_ps(_mm512_add_ps(t, shift), shift);
  const __m512 r = _mm512_sub_ps(t, n);
  // Fitted to the smallest largest relative error on [-1/2, 1/2].
  __m512 p = _mm512_set1_ps(0x1.5bba0cp-10F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.3cea88p-7F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c6b752p-5F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebf9bcp-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e42ap-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, n);
}

// Two floats per lane rounded to bf16, the first in the low half. Subnormals become zero, as in the tile products.
inline __m512i bf16_pairs(__m512 first, __m512 second) {
  const __m512bh halves = _mm512_cvtne2ps_pbh(second, first);  // all of the first, then all of the second
  __m512i bits;
  __builtin_memcpy(&bits, &halves, sizeof bits);
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), bits);
}

// The floats of a vector rounded to bf16, as bf16_pairs rounds them.
inline __m512 rounded_to_bf16(__m512 x) {
  const __m256bh halves = _mm512_cvtneps_pbh(x);
  __m256i bits;
  __builtin_memcpy(&bits, &halves, sizeof bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// 32 dimensions of a query as bf16, in pairs of neighbours.
inline __m512i query_pairs(const float* q) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  const __m512 low = _mm512_loadu_ps(q);
  const __m512 high = _mm512_loadu_ps(q + 16);
  return bf16_pairs(_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high));
}

// The rows of 16 positions as the left side of a product.
struct KeyTile {
  const uint8_t* at;
  int64_t stride;
};
inline KeyTile key_tile(const SpanTask& task, int64_t p, int64_t rows, uint8_t* memory) {
  const uint8_t* row[kTilePositions];
  find_rows(task, task.k_pages, p, kTilePositions, rows, row);
  if (p + kTilePositions <= rows && p % task.page_size + kTilePositions <= task.page_size) {
    return {row[0], task.row_bytes};
  }
  const int64_t bytes = task.head_dim * 2;
  for (int64_t i = 0; i < kTilePositions; ++i) {
    __builtin_memcpy(memory + i * bytes, row[i], static_cast<size_t>(bytes));
  }
  memory_barrier();
  return {memory, bytes};
}

}  // namespace
}  // namespace inferno
