// Quantized weights times many tokens with the matrix tiles: 16 tokens x 16 rows x up to 64 columns in one
// instruction, sums in int32. Bit-equal to quant/numerics.h.
//
// The tiles are configured when a kernel starts and released when it ends: a kernel leaves no state in the thread.
#pragma once

#include "backend/cpu/kernels/x86/amx_panel.h"

namespace inferno {
namespace {

// ---- blocks of 32

// One tile of tokens from `token`. results: kTileResults tiles.
template <InterleavedFormat kFormat>
inline void amx_tokens_32(const LinearTask& task, const uint8_t* panel, int64_t row, int64_t token, uint8_t* results) {
  using P = AmxPanel<kFormat>;
  const int64_t blocks = task.k / 32;
  const int64_t stride = row_bytes_32(task.k);
  const Row32 first = row_32(task.activations, token, task.k);
  const float* d = first.d;
  const int64_t d_stride = stride / 4;
  __m512 sums[kTileTokens] = {};
  for (int64_t b = 0; b < blocks; b += kTileResults) {
    const int64_t count = blocks - b < kTileResults ? blocks - b : kTileResults;
    const int8_t* q = first.q + b * 32;
    const uint8_t* w = panel + b * P::kBytes;
    memory_barrier();
    _tile_zero(0);
    _tile_loadd(4, q, stride);
    _tile_loadd(6, w, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_stored(0, results, 64);
    if (count > 1) {
      _tile_zero(1);
      _tile_loadd(5, q + 32, stride);
      _tile_loadd(7, w + P::kBytes, 64);
      _tile_dpbssd(1, 5, 7);
      _tile_stored(1, results + kTileBytes, 64);
    }
    if (count > 2) {
      _tile_zero(2);
      _tile_loadd(4, q + 64, stride);
      _tile_loadd(6, w + 2 * P::kBytes, 64);
      _tile_dpbssd(2, 4, 6);
      _tile_stored(2, results + 2 * kTileBytes, 64);
    }
    if (count > 3) {
      _tile_zero(3);
      _tile_loadd(5, q + 96, stride);
      _tile_loadd(7, w + 3 * P::kBytes, 64);
      _tile_dpbssd(3, 5, 7);
      _tile_stored(3, results + 3 * kTileBytes, 64);
    }
    memory_barrier();
    for (int64_t i = 0; i < count; ++i) {
      const __m512 dw = _mm512_loadu_ps(floats(w + i * P::kBytes + P::kD));
      for (int t = 0; t < kTileTokens; ++t) {
        const __m512 dx = _mm512_set1_ps(d[t * d_stride + b + i]);
        sums[t] = chain_512(sums[t], load_512(results + i * kTileBytes + 64 * t), dw, dx);
      }
    }
  }
  if constexpr (kFormat.minimums) {
    __m512 minimums[kTileTokens] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const __m512 m = _mm512_loadu_ps(floats(panel + b * P::kBytes + P::kM));
      for (int t = 0; t < kTileTokens; ++t) {
        const __m512i sum = _mm512_set1_epi32(first.sums[t * d_stride + b]);
        minimums[t] = chain_512(minimums[t], sum, m, _mm512_set1_ps(d[t * d_stride + b]));
      }
    }
    for (int t = 0; t < kTileTokens; ++t) sums[t] = _mm512_add_ps(sums[t], minimums[t]);
  }
  for (int t = 0; t < kTileTokens && token + t < task.tokens; ++t) put_panel_rows(task, token + t, row, sums[t]);
}

// ---- blocks of 256

// kTiles (1 or 2) tiles of tokens from `token`. results: kTileResults tiles; sums: [32][16] main, [32][16] minimum.
template <InterleavedFormat kFormat, int kTiles>
inline void amx_tokens_256(const LinearTask& task, const uint8_t* panel, int64_t row, int64_t token, uint8_t* results,
                           float* sums) {
  using P = AmxPanel<kFormat>;
  constexpr bool kHigh = P::kPlanes == 2;
  constexpr int kTokens = kTiles * static_cast<int>(kTileTokens);
  const int64_t blocks = task.k / 256;
  const int64_t stride = row_bytes_256(task.k);
  const Row256 first = row_256(task.activations, token, task.k);
  float* minimums = sums + 2 * kTileTokens * kPanelRows;
  for (int64_t i = 0; i < 4 * kTileTokens * kPanelRows; i += 16) _mm512_storeu_ps(sums + i, _mm512_setzero_ps());
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* block = panel + b * P::kBytes;
    memory_barrier();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t i = 0; i < 4; ++i) {
      const int8_t* q = first.q + b * 256 + 64 * i;
      _tile_loadd(4, q, stride);
      _tile_loadd(6, block + kTileBytes * i, 64);
      _tile_dpbssd(0, 4, 6);
      if constexpr (kHigh) {
        _tile_loadd(7, block + P::kPlaneBytes + kTileBytes * i, 64);
        _tile_dpbssd(1, 4, 7);
      }
      if constexpr (kTiles == 2) {
        _tile_loadd(5, q + kTileTokens * stride, stride);
        _tile_dpbssd(2, 5, 6);
        if constexpr (kHigh) _tile_dpbssd(3, 5, 7);
      }
    }
    _tile_stored(0, results, 64);
    _tile_stored(1, results + kTileBytes, 64);
    _tile_stored(2, results + 2 * kTileBytes, 64);
    _tile_stored(3, results + 3 * kTileBytes, 64);
    memory_barrier();
    const __m512 d = _mm512_loadu_ps(floats(block + P::kD));
    for (int t = 0; t < kTokens; ++t) {
      const Row256 x = row_256(task.activations, token + t, task.k);
      const __m512 dx = _mm512_set1_ps(x.d[b]);
      const uint8_t* tile = results + t / kTileTokens * 2 * kTileBytes + t % kTileTokens * 64;
      __m512i isum = load_512(tile);
      if constexpr (kHigh) isum = _mm512_add_epi32(isum, _mm512_slli_epi32(load_512(tile + kTileBytes), 7));
      float* sum = sums + t * kPanelRows;
      _mm512_storeu_ps(sum, chain_512(_mm512_loadu_ps(sum), isum, d, dx));
      if constexpr (kFormat.minimums) {
        const __m512 m = _mm512_loadu_ps(floats(block + P::kM));
        const __m512i msum = minimum_dot_512<kFormat>(block + P::kMins, x.sums[b]);
        float* minimum = minimums + t * kPanelRows;
        _mm512_storeu_ps(minimum, chain_512(_mm512_loadu_ps(minimum), msum, m, dx));
      }
    }
  }
  for (int t = 0; t < kTokens && token + t < task.tokens; ++t) {
    __m512 product = _mm512_loadu_ps(sums + t * kPanelRows);
    if constexpr (kFormat.minimums) product = _mm512_sub_ps(product, _mm512_loadu_ps(minimums + t * kPanelRows));
    put_panel_rows(task, token + t, row, product);
  }
}

// ---- all

inline constexpr int64_t kAmxResultBytes = kTileResults * kTileBytes;
inline constexpr int64_t kAmxSumBytes = 4 * kTileTokens * kPanelRows * 4;

template <InterleavedFormat kFormat>
inline int64_t amx_scratch(int64_t k, int64_t tokens) {
  if (tokens < kAmxTokens) return gemm_scratch<kFormat>(k, tokens);
  return kAmxResultBytes + kAmxSumBytes + k / kFormat.block * AmxPanel<kFormat>::kBytes;
}

template <InterleavedFormat kFormat>
inline void run_amx(const LinearTask& task) noexcept {
  if (task.tokens < kAmxTokens) return run_gemm<kFormat>(task);
  auto* results = static_cast<uint8_t*>(task.scratch);
  uint8_t* sums = results + kAmxResultBytes;
  uint8_t* panel = sums + kAmxSumBytes;
  configure_tiles(kFormat.block == 32 ? 32 : 64);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    for_panel_blocks<kFormat>(task, row, [panel](const uint8_t* block, int half, int64_t b) {
      unpack_amx_panel<kFormat>(block, half, panel + b * AmxPanel<kFormat>::kBytes);
    });
    for (int64_t t = 0; t < task.tokens;) {
      if constexpr (kFormat.block == 32) {
        amx_tokens_32<kFormat>(task, panel, row, t, results);
        t += kTileTokens;
      } else {
        auto* floats_of = static_cast<float*>(static_cast<void*>(sums));
        if (task.tokens - t > kTileTokens) {
          amx_tokens_256<kFormat, 2>(task, panel, row, t, results, floats_of);
          t += 2 * kTileTokens;
        } else {
          amx_tokens_256<kFormat, 1>(task, panel, row, t, results, floats_of);
          t += kTileTokens;
        }
      }
    }
  }
  _tile_release();
}

}  // namespace
}  // namespace inferno
