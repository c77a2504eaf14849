// Quantized weights times several tokens with the 512-bit 8-bit dot products: prompts and batches. Bit-equal to
// quant/numerics.h.
//
// Panels as in gemm.h, times tiles of tokens whose columns are side by side: all of a tile's operands are at constant
// distances from one address. What unpacking adds to levels is where the integer sums begin.
#pragma once

#include <algorithm>

#include "backend/cpu/kernels/x86/gemm.h"
#include "backend/cpu/kernels/x86/side_by_side.h"

namespace inferno {
namespace {

// The first passes over a panel request the next one.
inline constexpr int64_t kNextPanelPasses = 4;

// Of so many tokens, tile by tile, in a tile by sub-block and token.
template <InterleavedFormat kFormat>
inline int64_t first_sums_of(int64_t tokens, int64_t k) {
  return kFormat.signed_levels() ? tokens * (k / kFormat.sub) : 0;
}

// Sums of sub-block j of a block of `width` tokens, for each token.
template <InterleavedFormat kFormat>
inline int32_t side_sum(const uint8_t* x, int64_t width, int64_t j, int64_t token) {
  using Side = SideBlock<kFormat.block, false>;
  if constexpr (kFormat.block == 32) {
    int32_t sum;
    __builtin_memcpy(&sum, x + Side::kSums * width + 4 * token, 4);
    return sum;
  } else {
    const uint8_t* pairs = x + (kFormat.sub == 32 ? Side::kSums : Side::kSums16) * width;
    int16_t sum;
    __builtin_memcpy(&sum, pairs + (j / 2 * width + token) * 4 + j % 2 * 2, 2);
    return sum;
  }
}

// Minus what unpacking adds to the sum of every sub-block: where it begins. int32 as first_sums_of().
template <InterleavedFormat kFormat>
inline void find_first_sums(const LinearTask& task, int32_t* out) {
  using Side = SideBlock<kFormat.block, false>;
  const auto* x = static_cast<const uint8_t*>(task.activations);
  const int64_t blocks = task.k / kFormat.block;
  for (int64_t t = 0; t < task.tokens; t += kSideWidth) {
    const int64_t width = side_width(task.tokens, t);
    for (int64_t b = 0; b < blocks; ++b, x += Side::kBytes * width) {
      for (int64_t j = 0; j < kFormat.block / kFormat.sub; ++j, out += width) {
        for (int64_t i = 0; i < width; ++i) out[i] = -(side_sum<kFormat>(x, width, j, i) << kOffsetShift<kFormat>);
      }
    }
  }
}

// 16 rows x kTokens tokens x 4 * kVectors columns.
template <InterleavedFormat kFormat, int kVectors, int kTokens>
[[gnu::always_inline]] inline void side_columns(const uint8_t* levels, const uint8_t* x, const int32_t* first,
                                                __m512i (&c)[kTokens]) {
#pragma GCC unroll 12
  for (int t = 0; t < kTokens; ++t) {
    c[t] = kFormat.signed_levels() ? _mm512_set1_epi32(first[t]) : _mm512_setzero_si512();
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const __m512i w = load_512(levels + 64 * v);
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) c[t] = dot_columns(c[t], w, x + (v * kTokens + t) * 4);
  }
}

template <InterleavedFormat kFormat, int kTokens>
[[gnu::always_inline]] inline void add_side_block_32(const uint8_t* panel, const uint8_t* x, const int32_t* first,
                                                     __m512 (&chains)[kTokens]) {
  using P = Panel<kFormat>;
  using Side = SideBlock<32, false>;
  __m512i c[kTokens];
  side_columns<kFormat, 8>(panel, x, first, c);
  const __m512 d = _mm512_loadu_ps(floats(panel + P::kD));
  const float* dx = floats(x + Side::kD * kTokens);
#pragma GCC unroll 12
  for (int t = 0; t < kTokens; ++t) chains[t] = chain_512(chains[t], c[t], d, _mm512_set1_ps(dx[t]));
  if constexpr (kFormat.minimums) {
    const __m512 m = _mm512_loadu_ps(floats(panel + P::kM));
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      const __m512i sum = sixteen_columns(x + Side::kSums * kTokens + 4 * t);
      chains[t] = chain_512(chains[t], sum, m, _mm512_set1_ps(dx[t]));
    }
  }
}

template <InterleavedFormat kFormat, int kTokens>
[[gnu::always_inline]] inline void add_side_block_256(const uint8_t* panel, const uint8_t* x, const int32_t* first,
                                                      NextPanel& next, __m512 (&chains)[kTokens]) {
  using P = Panel<kFormat>;
  using Side = SideBlock<256, false>;
  __m512i isum[kTokens] = {};
  for (int j = 0; j < P::kSubs; ++j) {
    next.request_some();
    __m512i c[kTokens];
    side_columns<kFormat, kFormat.sub / 4>(panel + 16 * kFormat.sub * j, x + kFormat.sub * j * kTokens,
                                           first + j * kTokens, c);
    const __m512i scale = load_512(panel + P::kScales + 64 * j);
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) isum[t] = _mm512_add_epi32(isum[t], _mm512_mullo_epi32(c[t], scale));
  }
  const __m512 d = _mm512_loadu_ps(floats(panel + P::kD));
  const float* dx = floats(x + Side::kD * kTokens);
#pragma GCC unroll 12
  for (int t = 0; t < kTokens; ++t) chains[t] = chain_512(chains[t], isum[t], d, _mm512_set1_ps(dx[t]));
  if constexpr (kFormat.minimums) {
    const uint8_t* q_sums = x + (kFormat.sub == 32 ? Side::kSums : Side::kSums16) * kTokens;
    __m512i msum[kTokens] = {};
    for (int i = 0; i < P::kSubs / 2; ++i) {
      const __m512i pair = load_512(panel + P::kMins + 64 * i);
#pragma GCC unroll 12
      for (int t = 0; t < kTokens; ++t) {
        msum[t] = dot_pair(msum[t], pair, q_sums + (i * kTokens + t) * 4);
      }
    }
    const __m512 m = _mm512_loadu_ps(floats(panel + P::kM));
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) chains[t] = minus_chain_512(chains[t], msum[t], m, _mm512_set1_ps(dx[t]));
  }
}

// A panel times the kTokens tokens of a tile, of which the task has `count`.
template <InterleavedFormat kFormat, int kTokens>
inline void side_products(const LinearTask& task, const uint8_t* panel, const int32_t* first, NextPanel& next,
                          int64_t row, int64_t token, int64_t count) {
  using Side = SideBlock<kFormat.block, false>;
  const uint8_t* x =
      static_cast<const uint8_t*>(task.activations) + token * side_token_bytes<kFormat.block, false>(task.k);
  first += first_sums_of<kFormat>(token, task.k);
  constexpr int kSubs = kFormat.block / kFormat.sub;
  const uint8_t* const end = panel + task.k / kFormat.block * Panel<kFormat>::kBytes;
  NextPanel ahead = next;
  __m512 chains[kTokens] = {};
  for (; panel < end; panel += Panel<kFormat>::kBytes, x += Side::kBytes * kTokens, first += kSubs * kTokens) {
    if constexpr (kFormat.block == 32) {
      ahead.request_some();
      add_side_block_32<kFormat>(panel, x, first, chains);
    } else {
      add_side_block_256<kFormat>(panel, x, first, ahead, chains);
    }
  }
  next = ahead;
  for (int64_t t = 0; t < count; ++t) store_panel_rows(task, token + t, row, chains[t]);
}

template <InterleavedFormat kFormat>
inline void side_products(const LinearTask& task, const uint8_t* panel, const int32_t* first, NextPanel& next,
                          int64_t row, int64_t token) {
  static_assert(kSideWidth == 12 && kSideStep == 4);
  const int64_t count = std::min(task.tokens - token, kSideWidth);
  if (count > 8) return side_products<kFormat, 12>(task, panel, first, next, row, token, count);
  if (count > 4) return side_products<kFormat, 8>(task, panel, first, next, row, token, count);
  side_products<kFormat, 4>(task, panel, first, next, row, token, count);
}

template <InterleavedFormat kFormat>
inline int64_t first_sums_bytes(int64_t k, int64_t tokens) {
  return (first_sums_of<kFormat>(side_filled(tokens), k) * 4 + 63) / 64 * 64;
}

template <InterleavedFormat kFormat>
inline int64_t side_scratch(int64_t k, int64_t tokens) {
  if (tokens < kSideTokens) return gemm_scratch<kFormat>(k, tokens);
  return first_sums_bytes<kFormat>(k, tokens) + k / kFormat.block * Panel<kFormat>::kBytes;
}

template <InterleavedFormat kFormat>
inline void run_side(const LinearTask& task) noexcept {
  if (task.tokens < kSideTokens) return run_gemm<kFormat>(task);
  auto* first = static_cast<int32_t*>(task.scratch);
  if constexpr (kFormat.signed_levels()) find_first_sums<kFormat>(task, first);
  auto* panel = static_cast<uint8_t*>(task.scratch) + first_sums_bytes<kFormat>(task.k, task.tokens);
  const int64_t blocks = task.k / kFormat.block;
  const int64_t passes = std::min<int64_t>((task.tokens + kSideWidth - 1) / kSideWidth, kNextPanelPasses);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    for_panel_blocks<kFormat>(task, row, [panel](const uint8_t* block, int half, int64_t b) {
      unpack_panel<kFormat>(block, half, panel + b * Panel<kFormat>::kBytes);
    });
    NextPanel next(task, row, blocks * InterleavedBlock<kFormat>::kBytes,
                   passes * blocks * (kFormat.block == 32 ? 1 : Panel<kFormat>::kSubs));
    for (int64_t t = 0; t < task.tokens; t += kSideWidth) side_products<kFormat>(task, panel, first, next, row, t);
  }
}

}  // namespace
}  // namespace inferno
