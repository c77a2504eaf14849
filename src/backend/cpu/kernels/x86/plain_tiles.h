// F32, F16 and BF16 weights times many tokens side by side. Each output is the same chain as in plain_linear.h.
//
// Activations: few tokens in rows, as there. Else tiles of kPlainWidth tokens, the last one narrower and filled up with
// zero tokens; in a tile, for each column, the tokens one after another. (Rows whose length is a power of two would
// share a few sets of the cache.)
#pragma once

#include "backend/cpu/kernels/x86/plain_linear.h"
#include "backend/cpu/kernels/x86/side_by_side.h"

namespace inferno {
namespace {

// As many as their sums with the rows of two vectors fit the registers.
inline constexpr int64_t kPlainWidth = kWide == 16 ? 12 : 6;
inline constexpr int64_t kPlainTileRows = 2 * kWide;
static_assert(kPlainWidth % kSideStep == 0);

inline int64_t plain_tile_bytes(int64_t tokens, int64_t k) {
  if (tokens < kPlainPanelTokens) return plain_bytes(tokens, k);
  return (side_filled(tokens) * k * 4 + 63) / 64 * 64;
}

template <DType kType>
inline void prepare_plain_tiles(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                                void* buffer) noexcept {
  if (tokens < kPlainPanelTokens) return prepare_plain<kType>(x, x_stride, tokens, k, begin, end, buffer);
  // With the last token also those that fill up its tile.
  const int64_t filled = end < tokens ? end : side_filled(tokens);
  for (int64_t t = begin; t < filled; ++t) {
    const int64_t first = t / kPlainWidth * kPlainWidth;
    const int64_t width = side_width<kPlainWidth>(tokens, first);
    const float* from = x + t * x_stride;
    float* to = static_cast<float*>(buffer) + first * k + (t - first);
    if (t >= tokens) {
      for (int64_t i = 0; i < k; ++i) to[i * width] = 0;
      continue;
    }
    const bool fits = plain_fits<kType>(from, k);
    for (int64_t i = 0; i < k; i += 8) {
      float values[8];
      _mm256_storeu_ps(values, plain_values<kType>(load_some(from + i, k - i), fits));
      const int64_t count = k - i < 8 ? k - i : 8;
      for (int64_t j = 0; j < count; ++j) to[(i + j) * width] = values[j];
    }
  }
}

template <DType kType>
inline constexpr ActivationLayout kPlainTiles = {kType == DType::f32   ? "f32, tiles"
                                                 : kType == DType::f16 ? "f16, tiles"
                                                                       : "bf16, tiles",
                                                 1, plain_tile_bytes, prepare_plain_tiles<kType>};

// A panel [k][kPlainTileRows] times the kTokens tokens of a tile, of which the task has `count`.
template <int kTokens>
inline void multiply_plain_tile(const LinearTask& task, const float* panel, int64_t row, int64_t token, int64_t count) {
  const float* x = static_cast<const float*>(task.activations) + token * task.k;
  Wide sums[2][kTokens] = {};
  for (int64_t i = 0; i < task.k; ++i, panel += kPlainTileRows, x += kTokens) {
    // The panel is in the second cache: a little ahead of the first one's own prefetching.
    for (int64_t line = 0; line < kPlainTileRows; line += 16)
      _mm_prefetch(panel + 16 * kPlainTileRows + line, _MM_HINT_T0);
    const Wide low = wide_load(panel);
    const Wide high = wide_load(panel + kWide);
#pragma GCC unroll 12
    for (int t = 0; t < kTokens; ++t) {
      const Wide column = wide_set(x[t]);
      sums[0][t] = wide_fma(low, column, sums[0][t]);
      sums[1][t] = wide_fma(high, column, sums[1][t]);
    }
  }
  for (int64_t t = 0; t < count; ++t) {
    float products[kPlainTileRows];
    wide_store(products, sums[0][t]);
    wide_store(products + kWide, sums[1][t]);
    for (int64_t r = 0; r < kPlainTileRows && row + r < task.row_end; r += 8) {
      store_rows(task, token + t, row + r, _mm256_loadu_ps(products + r));
    }
  }
}

template <int kTokens = static_cast<int>(kPlainWidth)>
inline void multiply_plain_tile(const LinearTask& task, const float* panel, int64_t row, int64_t token, int64_t width,
                                int64_t count) {
  if constexpr (kTokens > kSideStep) {
    if (width < kTokens) return multiply_plain_tile<kTokens - kSideStep>(task, panel, row, token, width, count);
  }
  multiply_plain_tile<kTokens>(task, panel, row, token, count);
}

template <typename Columns>
inline void run_plain_tiles(const LinearTask& task) noexcept {
  if (task.tokens < kPlainPanelTokens) return run_plain<Columns>(task);
  const int64_t group_bytes = task.k * kInterleavedRows * Columns::kBytes;
  auto* panel = static_cast<float*>(task.scratch);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPlainTileRows) {
    const uint8_t* first = static_cast<const uint8_t*>(task.weight) + row / kInterleavedRows * group_bytes;
    for (int64_t r = 0; r < kPlainTileRows; r += kInterleavedRows) {
      // No such group: the first in its place, its results are not stored.
      const uint8_t* group = row + r < task.row_end ? first + r / kInterleavedRows * group_bytes : first;
      for (int64_t i = 0; i < task.k; ++i) {
        _mm256_storeu_ps(panel + i * kPlainTileRows + r, Columns::at(group, i));
      }
    }
    for (int64_t t = 0; t < task.tokens; t += kPlainWidth) {
      const int64_t rest = task.tokens - t;
      const int64_t count = rest < kPlainWidth ? rest : kPlainWidth;
      multiply_plain_tile(task, panel, row, t, side_width<kPlainWidth>(task.tokens, t), count);
    }
  }
}

inline int64_t plain_tile_scratch(int64_t k, int64_t tokens) {
  return tokens < kPlainPanelTokens ? 0 : kPlainTileRows * k * 4;
}

template <typename Columns, DType kType>
inline void set_plain_tiles(KernelTable& table, const char* name) {
  table.linear[static_cast<int>(kType)] = {name,
                                           &column_interleaved_layout(Columns::kBytes),
                                           &kPlainTiles<kType>,
                                           kInterleavedRows,
                                           plain_tile_scratch,
                                           run_plain_tiles<Columns>};
}

inline void fill_plain_tiles(KernelTable& table, const char* name) {
  set_plain_tiles<F32Columns, DType::f32>(table, name);
  set_plain_tiles<F16Columns, DType::f16>(table, name);
  set_plain_tiles<Bf16Columns, DType::bf16>(table, name);
}

}  // namespace
}  // namespace inferno
