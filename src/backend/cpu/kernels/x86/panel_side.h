// Q8_0 in panels of 16 rows times several tokens with the 512-bit 8-bit dot products: prompts and batches. Bit-equal to
// quant/numerics.h.
//
// Tokens are side by side as in side_gemm.h, but a panel is multiplied as it is stored: its levels become unsigned in
// registers, and nothing is unpacked. While a panel is multiplied the next one is on its way from memory.
#pragma once

#include "backend/cpu/kernels/x86/panel_stream.h"
#include "backend/cpu/kernels/x86/side_gemm.h"

namespace inferno {
namespace {

// With nothing to unpack tiles begin earlier than those of side_gemm.h.
inline constexpr int64_t kPanelSideTokens = 4;
static_assert(kPanelSideTokens > kPrefetchTokens);

// A panel times the kTokens tokens of a tile, of which the task has `count`.
template <int kTokens>
inline void stored_panel_tile(const LinearTask& task, const uint8_t* panel, const int32_t* first, NextPanel& next,
                              int64_t row, int64_t token, int64_t count) {
  using Side = SideBlock<32, false>;
  const uint8_t* x = static_cast<const uint8_t*>(task.activations) + token * side_token_bytes<32, false>(task.k);
  first += first_sums_of<kFormatQ8_0>(token, task.k);
  const int64_t blocks = task.k / 32;
  NextPanel ahead = next;
  __m512 chains[kTokens] = {};
  for (int64_t b = 0; b < blocks; ++b, x += Side::kBytes * kTokens, first += kTokens) {
    ahead.request_some();
    const uint8_t* levels = panel_levels(panel, b);
    __m512i c[kTokens];
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) c[t] = _mm512_set1_epi32(first[t]);
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      const __m512i w = _mm512_xor_si512(load_512(levels + 64 * v), _mm512_set1_epi8(-128));
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) c[t] = dot_columns(c[t], w, x + (v * kTokens + t) * 4);
    }
    const __m512 d = panel_d(panel, b);
    const float* dx = floats(x + Side::kD * kTokens);
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) chains[t] = chain_512(chains[t], c[t], d, _mm512_set1_ps(dx[t]));
  }
  next = ahead;
  for (int64_t t = 0; t < count; ++t) store_panel_rows(task, token + t, row, chains[t]);
}

inline int64_t panel_side_scratch(int64_t k, int64_t tokens) {
  return tokens < kPanelSideTokens ? tokens * (k / 32) * 4 : first_sums_bytes<kFormatQ8_0>(k, tokens);
}

inline void run_panel_side(const LinearTask& task) noexcept {
  if (task.tokens < kPanelSideTokens) return stream_byte_panels(task);
  auto* first = static_cast<int32_t*>(task.scratch);
  find_first_sums<kFormatQ8_0>(task, first);
  const int64_t blocks = task.k / 32;
  const int64_t panel_bytes = byte_panel_bytes(task.k);
  const int64_t passes = std::min<int64_t>((task.tokens + kSideWidth - 1) / kSideWidth, kNextPanelPasses);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    const uint8_t* panel = static_cast<const uint8_t*>(task.weight) + row / kPanelRows * panel_bytes;
    NextPanel next(task, row, panel_bytes / 2, passes * blocks);
    for (int64_t t = 0; t < task.tokens; t += kSideWidth) {
      const int64_t count = std::min(task.tokens - t, kSideWidth);
      if (count > 8) {
        stored_panel_tile<12>(task, panel, first, next, row, t, count);
      } else if (count > 4) {
        stored_panel_tile<8>(task, panel, first, next, row, t, count);
      } else {
        stored_panel_tile<4>(task, panel, first, next, row, t, count);
      }
    }
  }
}

}  // namespace
}  // namespace inferno
