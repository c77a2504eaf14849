// Q8_0 in panels of 16 rows times up to 8 tokens: decode and small batches, bound by memory. Bit-equal to
// quant/numerics.h.
//
// The range of panels is split into distant streams that are read in lockstep, two blocks at a time, as in gemv.h.
// Levels are made unsigned for the 8-bit dot products, whose sums begin with what that adds.
#pragma once

#include "backend/cpu/kernels/x86/gemm.h"

namespace inferno {
namespace {

inline constexpr int64_t kPanelStreamTokens = 8;  // as many as fit the registers

inline int64_t byte_panel_bytes(int64_t k) {
  return (k / 32 + 1) / 2 * BytePanel::kPairBytes;
}
inline const uint8_t* panel_levels(const uint8_t* panel, int64_t block) {
  return panel + block / 2 * BytePanel::kPairBytes + block % 2 * BytePanel::kLevelBytes;
}
inline __m512 panel_d(const uint8_t* panel, int64_t block) {
  const uint8_t* d =
      panel + block / 2 * BytePanel::kPairBytes + 2 * BytePanel::kLevelBytes + block % 2 * BytePanel::kDBytes;
  return _mm512_cvtph_ps(load_256(d));
}

// Blocks [first, first + count) of a panel, times kTokens tokens, added to sums. offsets: level_offsets().
template <int kTokens, StreamPolicy kPolicy>
inline void add_panel_blocks(const uint8_t* panel, const Row32* x, const int32_t* offsets, int64_t blocks,
                             int64_t first, int64_t count, __m512 (&sums)[kTokens], Prefetcher<kPolicy>& prefetcher) {
  __m512 s[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) s[t] = sums[t];
  for (int64_t b = first; b < first + count; ++b) {
    const uint8_t* levels = panel_levels(panel, b);
    // A few lines at a time: more would wait for each other. The second block's lines include those of d.
    if (b % 2 == 0) {
      prefetcher.template prefetch_for<BytePanel::kLevelBytes>(levels);
    } else {
      prefetcher.template prefetch_for<BytePanel::kLevelBytes + 2 * BytePanel::kDBytes>(levels);
    }
    __m512i w[8];
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) w[v] = _mm512_xor_si512(load_512(levels + 64 * v), _mm512_set1_epi8(-128));
    const __m512 d = panel_d(panel, b);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      __m512i c = _mm512_set1_epi32(offsets[t * blocks + b]);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) c = dot_columns(c, w[v], x[t].q + b * 32 + 4 * v);
      s[t] = chain_512(s[t], c, d, _mm512_set1_ps(x[t].d[b]));
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) sums[t] = s[t];
}

// Turns of two blocks.
inline constexpr StreamPolicy kPanelPolicy = {
    .turn_bytes = BytePanel::kPairBytes, .prefetch_distance = 1024, .to_l1 = true};

template <int kTokens, StreamPolicy kPolicy = kPanelPolicy>
inline void stream_byte_panels(const LinearTask& task) {
  const int64_t blocks = task.k / 32;
  const int64_t panel_bytes = byte_panel_bytes(task.k);
  const int64_t first_panel = task.row_begin / BytePanel::kRows;
  const int64_t panels = (task.row_end + BytePanel::kRows - 1) / BytePanel::kRows - first_panel;
  // Several streams are for memory; what has been prefetched into a core's cache is read as one.
  const int64_t max_streams = task.prefetch != nullptr ? 1 : kPolicy.streams;
  const int64_t part = (panels + max_streams - 1) / max_streams;
  auto* offsets = static_cast<int32_t*>(task.scratch);
  level_offsets<kFormatQ8_0>(task, offsets);
  Prefetcher<kPolicy> prefetcher(task);
  Row32 x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = row_32(task.activations, t, task.k);
  for (int64_t i = 0; i < part; ++i) {
    __m512 sums[kPolicy.streams][kTokens] = {};
    const uint8_t* at[kPolicy.streams];
    int streams = 0;
    for (int64_t p = i; p < panels; p += part) {
      at[streams++] = static_cast<const uint8_t*>(task.weight) + (first_panel + p) * panel_bytes;
    }
    for (int64_t b = 0; b < blocks; b += 2) {
      const int64_t count = blocks - b < 2 ? 1 : 2;
      for (int s = 0; s < streams; ++s) {
        add_panel_blocks<kTokens, kPolicy>(at[s], x, offsets, blocks, b, count, sums[s], prefetcher);
      }
    }
    for (int s = 0; s < streams; ++s) {
      const int64_t row = (first_panel + i + s * part) * BytePanel::kRows;
      for (int t = 0; t < kTokens; ++t) store_panel_rows(task, t, row, sums[s][t]);
    }
  }
}

inline void stream_byte_panels(const LinearTask& task) {
  switch (task.tokens) {
    case 1:
      return stream_byte_panels<1>(task);
    case 2:
      return stream_byte_panels<2>(task);
    case 3:
      return stream_byte_panels<3>(task);
    case 4:
      return stream_byte_panels<4>(task);
    case 5:
      return stream_byte_panels<5>(task);
    case 6:
      return stream_byte_panels<6>(task);
    case 7:
      return stream_byte_panels<7>(task);
    default:
      return stream_byte_panels<8>(task);
  }
}

}  // namespace
}  // namespace inferno
