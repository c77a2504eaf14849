// Q8_0 in panels of 16 rows times several tokens with the 512-bit 8-bit dot products: prompts and batches. Bit-equal to
// quant/numerics.h.
//
// Tokens are side by side as in side_gemm.h. Few of them are multiplied by a panel as it is stored, whose levels become
// unsigned in registers; for many that is done once, in memory. While a panel is multiplied the next one is on its way
// from memory.
#pragma once

#include "backend/cpu/kernels/x86/panel_stream.h"
#include "backend/cpu/kernels/x86/side_gemm.h"

namespace inferno {
namespace {

// With nothing to unpack tiles begin earlier than those of side_gemm.h.
inline constexpr int64_t kPanelSideTokens = 4;
static_assert(kPanelSideTokens > kPrefetchTokens);

// Unpacking takes about as long as it saves in five to eight tiles.
inline constexpr int64_t kUnpackTokens = 96;

// A panel as it is stored, and with unsigned levels and d as f32.
struct StoredPanel {
  const uint8_t* at;

  [[nodiscard]] __m512i levels(int64_t block, int v) const {
    return _mm512_xor_si512(load_512(panel_levels(at, block) + 64 * v), _mm512_set1_epi8(-128));
  }
  [[nodiscard]] __m512 d(int64_t block) const { return panel_d(at, block); }
};
struct UnpackedPanel {
  using Layout = Panel<kFormatQ8_0>;
  const uint8_t* at;

  [[nodiscard]] __m512i levels(int64_t block, int v) const { return load_512(at + block * Layout::kBytes + 64 * v); }
  [[nodiscard]] __m512 d(int64_t block) const {
    return _mm512_loadu_ps(floats(at + block * Layout::kBytes + Layout::kD));
  }
};

inline UnpackedPanel unpack_stored(const StoredPanel& panel, int64_t blocks, uint8_t* to) {
  using Layout = Panel<kFormatQ8_0>;
  const UnpackedPanel unpacked{to};
  for (int64_t b = 0; b < blocks; ++b, to += Layout::kBytes) {
    for (int v = 0; v < 8; ++v) _mm512_storeu_si512(to + 64 * v, panel.levels(b, v));
    _mm512_storeu_ps(to + Layout::kD, panel.d(b));
  }
  return unpacked;
}

// A panel times the kTokens tokens of a tile, of which the task has `count`.
template <int kTokens, typename AnyPanel>
inline void panel_tile(const LinearTask& task, const AnyPanel& panel, const int32_t* first, NextPanel& next,
                       int64_t row, int64_t token, int64_t count) {
  using Side = SideBlock<32, false>;
  const uint8_t* x = static_cast<const uint8_t*>(task.activations) + token * side_token_bytes<32, false>(task.k);
  first += first_sums_of<kFormatQ8_0>(token, task.k);
  const int64_t blocks = task.k / 32;
  NextPanel ahead = next;
  __m512 chains[kTokens] = {};
  for (int64_t b = 0; b < blocks; ++b, x += Side::kBytes * kTokens, first += kTokens) {
    ahead.request_some();
    __m512i c[kTokens];
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) c[t] = _mm512_set1_epi32(first[t]);
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      const __m512i w = panel.levels(b, v);
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) c[t] = dot_columns(c[t], w, x + (v * kTokens + t) * 4);
    }
    const __m512 d = panel.d(b);
    const float* dx = floats(x + Side::kD * kTokens);
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) chains[t] = chain_512(chains[t], c[t], d, _mm512_set1_ps(dx[t]));
  }
  next = ahead;
  for (int64_t t = 0; t < count; ++t) store_panel_rows(task, token + t, row, chains[t]);
}

template <typename AnyPanel>
inline void panel_tiles(const LinearTask& task, const AnyPanel& panel, const int32_t* first, NextPanel& next,
                        int64_t row) {
  for (int64_t t = 0; t < task.tokens; t += kSideWidth) {
    const int64_t count = std::min(task.tokens - t, kSideWidth);
    if (count > 8) {
      panel_tile<12>(task, panel, first, next, row, t, count);
    } else if (count > 4) {
      panel_tile<8>(task, panel, first, next, row, t, count);
    } else {
      panel_tile<4>(task, panel, first, next, row, t, count);
    }
  }
}

inline int64_t panel_side_scratch(int64_t k, int64_t tokens) {
  if (tokens < kPanelSideTokens) return tokens * (k / 32) * 4;
  return first_sums_bytes<kFormatQ8_0>(k, tokens) + (tokens < kUnpackTokens ? 0 : k / 32 * Panel<kFormatQ8_0>::kBytes);
}

inline void run_panel_side(const LinearTask& task) noexcept {
  if (task.tokens < kPanelSideTokens) return stream_byte_panels(task);
  auto* first = static_cast<int32_t*>(task.scratch);
  find_first_sums<kFormatQ8_0>(task, first);
  auto* unpacked = static_cast<uint8_t*>(task.scratch) + first_sums_bytes<kFormatQ8_0>(task.k, task.tokens);
  const int64_t blocks = task.k / 32;
  const int64_t panel_bytes = byte_panel_bytes(task.k);
  const int64_t passes = std::min<int64_t>((task.tokens + kSideWidth - 1) / kSideWidth, kNextPanelPasses);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    const StoredPanel panel{static_cast<const uint8_t*>(task.weight) + row / kPanelRows * panel_bytes};
    NextPanel next(task, row, panel_bytes / 2, passes * blocks);
    if (task.tokens < kUnpackTokens) {
      panel_tiles(task, panel, first, next, row);
    } else {
      panel_tiles(task, unpack_stored(panel, blocks, unpacked), first, next, row);
    }
  }
}

}  // namespace
}  // namespace inferno
