// Panels: quantized weights of two groups, 16 rows, unpacked for products with many tokens. What all kinds of panels
// share.
#pragma once

#include "backend/cpu/kernels/x86/gemv.h"

namespace inferno {
namespace {

inline constexpr int64_t kPanelRows = 16;

inline const float* floats(const uint8_t* p) {
  return static_cast<const float*>(static_cast<const void*>(p));
}

// The parts all kinds of panels have; at: where the panel keeps its d. half: 0 or 1.
template <InterleavedFormat kFormat>
inline void unpack_scales(const uint8_t* block, int half, uint8_t* d, uint8_t* m) {
  using Layout = InterleavedBlock<kFormat>;
  store_256(d + 32 * half, _mm256_castps_si256(load_d<kFormat>(block + Layout::kD)));
  if constexpr (kFormat.minimums) {
    store_256(m + 32 * half, _mm256_castps_si256(load_scales(block + Layout::kM)));
  }
}
template <InterleavedFormat kFormat>
inline void unpack_minimums(const uint8_t* block, int half, uint8_t* mins) {
  constexpr char kNo = -128;
  const __m256i first =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, kNo, 1, kNo, 4, kNo, 5, kNo, 8, kNo, 9, kNo, 12, kNo, 13, kNo));
  const __m256i second =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(2, kNo, 3, kNo, 6, kNo, 7, kNo, 10, kNo, 11, kNo, 14, kNo, 15, kNo));
  for (int i = 0; i < InterleavedBlock<kFormat>::kSubs / 4; ++i) {
    const __m256i m = load_minimums<kFormat>(block, i);
    store_256(mins + 128 * i + 32 * half, _mm256_shuffle_epi8(m, first));
    store_256(mins + 128 * i + 64 + 32 * half, _mm256_shuffle_epi8(m, second));
  }
}

// f(block of the group, half, number of the block) for the blocks of the 16 rows from `row`: both halves of a block one
// after the other, since they share the lines of a panel. Where there is no second group the first is used in
// its place: its results are not stored.
template <InterleavedFormat kFormat, typename F>
inline void for_panel_blocks(const LinearTask& task, int64_t row, F f) {
  constexpr int kBytes = InterleavedBlock<kFormat>::kBytes;
  const int64_t blocks = task.k / kFormat.block;
  const uint8_t* first = static_cast<const uint8_t*>(task.weight) + row / kInterleavedRows * blocks * kBytes;
  const uint8_t* second = row + kInterleavedRows < task.row_end ? first + blocks * kBytes : first;
  for (int64_t b = 0; b < blocks; ++b) {
    for (int half = 0; half < 2; ++half) {
      const uint8_t* block = (half == 0 ? first : second) + b * kBytes;
      prefetch_lines<kBytes>(block + StreamPolicy{}.prefetch_distance);
      f(block, half, b);
    }
  }
}

#if defined(__AVX512F__)
// 16 finished outputs of a token.
inline void store_panel_rows(const LinearTask& task, int64_t token, int64_t row, __m512 product) {
  if (row + kPanelRows <= task.row_end) {
    float* out = task.out + token * task.out_stride + row;
    if (task.accumulate) product = _mm512_add_ps(_mm512_loadu_ps(out), product);
    _mm512_storeu_ps(out, product);
    return;
  }
  store_rows(task, token, row, _mm512_castps512_ps256(product));
  if (row + 8 < task.row_end) store_rows(task, token, row + 8, _mm512_extractf32x8_ps(product, 1));
}
#endif

}  // namespace
}  // namespace inferno
