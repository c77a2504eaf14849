// BF16 weights with the bf16 matrix tiles: 16 tokens x 16 rows x 32 columns in one instruction, f32 sums.
//
// Each output adds its steps of 32 columns in ascending K. In a step the instruction sums the even and the odd columns,
// each with a chain of fused multiply-adds, adds both sums and adds the result to the total; subnormals count as zero.
// One token is multiplied by the same instruction in the same order as many, and no output of a tile depends on the
// others: so a token's product does not depend on its neighbours.
//
// Weights: tile_panel_layout(). Activations: bf16, tiles of 16 tokens, for each 32 columns 64 bytes of each token. Up
// to 16 tokens are one tile without padding, more are padded with zero tokens to whole tiles.
#pragma once

#include "backend/cpu/kernels/x86/amx_tiles.h"
#include "backend/cpu/kernels/x86/floats.h"
#include "backend/cpu/kernels/x86/gemm.h"

namespace inferno {
namespace {

inline constexpr int64_t kStepColumns = 32;
inline constexpr int64_t kStepBytes = 2 * kStepColumns;  // of a token

inline int64_t bf16_steps(int64_t k) {
  return (k + kStepColumns - 1) / kStepColumns;
}
// Of 16 rows, in weights and in whole tiles of tokens.
inline int64_t bf16_panel_bytes(int64_t k) {
  return bf16_steps(k) * kTileBytes;
}

// ---- activations

inline int64_t bf16_tile_rows(int64_t tokens) {
  return tokens < kTileTokens ? tokens : kTileTokens;
}
inline int64_t bf16_tiles_bytes(int64_t tokens, int64_t k) {
  return token_tiles(tokens) * bf16_tile_rows(tokens) * bf16_steps(k) * kStepBytes;
}
// Columns [begin, k) in steps of 32 of a row x, or of zeros where x is null, up to column `end`; steps are `stride`
// bytes apart.
inline void convert_bf16_row(const float* x, int64_t k, int64_t begin, int64_t end, uint8_t* to, int64_t stride) {
  for (int64_t i = begin; i < end; i += kStepColumns) {
    __m512 low = _mm512_setzero_ps();
    __m512 high = _mm512_setzero_ps();
    if (x != nullptr) {
      low = wide_load_some(x + i, k - i);
      if (i + kWide < k) high = wide_load_some(x + i + kWide, k - i - kWide);
    }
    const __m512bh halves = _mm512_cvtne2ps_pbh(high, low);
    __builtin_memcpy(to + i / kStepColumns * stride, &halves, kStepBytes);
  }
}
inline void prepare_bf16_part(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                              int64_t col_begin, int64_t col_end, void* buffer) noexcept {
  const int64_t rows = bf16_tile_rows(tokens);
  const int64_t filled = end < tokens ? end : token_tiles(tokens) * rows;
  for (int64_t t = begin; t < filled; ++t) {
    uint8_t* to = static_cast<uint8_t*>(buffer) + t / rows * bf16_panel_bytes(k) + t % rows * kStepBytes;
    const float* from = t < tokens ? x + (t - begin) * x_stride - col_begin : nullptr;
    convert_bf16_row(from, k, col_begin, col_end, to, rows * kStepBytes);
  }
}
inline void prepare_bf16_tiles(const float* x, int64_t x_stride, int64_t tokens, int64_t k, int64_t begin, int64_t end,
                               void* buffer) noexcept {
  prepare_bf16_part(x + begin * x_stride, x_stride, tokens, k, begin, end, 0, k, buffer);
}
inline void prepare_bf16_columns(const float* x, int64_t k, int64_t begin, int64_t end, void* buffer) noexcept {
  convert_bf16_row(x, k, begin, end, static_cast<uint8_t*>(buffer), kStepBytes);
}
inline int64_t bf16_offset(int64_t token, int64_t k) {
  return token / kTileTokens * bf16_panel_bytes(k);
}
inline constexpr int64_t kBf16TokenBlock = 256;
inline constexpr ActivationLayout kBf16Tiles = {
    "bf16, tiles",   1,           bf16_tiles_bytes, prepare_bf16_tiles, kStepColumns, prepare_bf16_columns,
    kBf16TokenBlock, bf16_offset, prepare_bf16_part};

// ---- up to 16 tokens: one tile of them, weights from memory

// kPanels (1 or 4) panels at w in lockstep; sums[kPanels][tokens][16]. The weights' tiles share two registers
// (amx_tiles.h says why).
template <int kPanels, StreamPolicy kPolicy>
inline void few_tokens_panels(const LinearTask& task, const uint8_t* const* w, Prefetcher<kPolicy>& prefetcher,
                              float* sums) {
  const auto* x = static_cast<const uint8_t*>(task.activations);
  const int64_t step_bytes = task.tokens * kStepBytes;
  _tile_zero(0);
  if constexpr (kPanels == 4) {
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t s = 0; s < bf16_steps(task.k); ++s) {
    _tile_loadd(4, x + s * step_bytes, kStepBytes);
    prefetcher.template prefetch_for<kTileBytes>(w[0] + s * kTileBytes);
    _tile_loadd(5, w[0] + s * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kPanels == 4) {
      prefetcher.template prefetch_for<kTileBytes>(w[1] + s * kTileBytes);
      _tile_loadd(6, w[1] + s * kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 6);
      prefetcher.template prefetch_for<kTileBytes>(w[2] + s * kTileBytes);
      _tile_loadd(5, w[2] + s * kTileBytes, 64);
      _tile_dpbf16ps(2, 4, 5);
      prefetcher.template prefetch_for<kTileBytes>(w[3] + s * kTileBytes);
      _tile_loadd(6, w[3] + s * kTileBytes, 64);
      _tile_dpbf16ps(3, 4, 6);
    }
  }
  const int64_t panel_sums = task.tokens * kPanelRows;
  _tile_stored(0, sums, 64);
  if constexpr (kPanels == 4) {
    _tile_stored(1, sums + panel_sums, 64);
    _tile_stored(2, sums + 2 * panel_sums, 64);
    _tile_stored(3, sums + 3 * panel_sums, 64);
  }
  memory_barrier();
}

// Without ranges to prefetch: four distant streams of panels, as in gemv.h.
inline void multiply_few_bf16(const LinearTask& task) {
  constexpr StreamPolicy kPolicy = {.streams = 4};
  const int64_t panel_bytes = bf16_panel_bytes(task.k);
  const int64_t first = task.row_begin / kPanelRows;
  const int64_t panels = (task.row_end + kPanelRows - 1) / kPanelRows - first;
  const int64_t part = task.prefetch != nullptr ? panels : (panels + kPolicy.streams - 1) / kPolicy.streams;
  Prefetcher<kPolicy> prefetcher(task);
  configure_tiles(64, static_cast<int>(task.tokens), 5);
  for (int64_t i = 0; i < part; ++i) {
    const uint8_t* w[kPolicy.streams];
    int64_t row[kPolicy.streams];
    int streams = 0;
    for (int64_t p = i; p < panels; p += part, ++streams) {
      w[streams] = static_cast<const uint8_t*>(task.weight) + (first + p) * panel_bytes;
      row[streams] = (first + p) * kPanelRows;
    }
    alignas(64) float sums[kPolicy.streams * kTileTokens * kPanelRows];
    const int64_t panel_sums = task.tokens * kPanelRows;
    if (streams == kPolicy.streams) {
      few_tokens_panels<kPolicy.streams>(task, w, prefetcher, sums);
    } else {
      for (int s = 0; s < streams; ++s) few_tokens_panels<1>(task, w + s, prefetcher, sums + s * panel_sums);
    }
    for (int s = 0; s < streams; ++s) {
      for (int64_t t = 0; t < task.tokens; ++t) {
        store_panel_rows(task, t, row[s], _mm512_load_ps(sums + s * panel_sums + t * kPanelRows));
      }
    }
  }
  _tile_release();
}

// ---- more tokens: two tiles of them times two panels

// The cache blocking. All outputs of a block of tokens and a slab of panels add some columns before any adds the next
// ones: those of the tokens stay in L1 for all panels, and the sums wait in memory between their turns.
struct TileScheduleBf16 {
  int64_t tiles = 4;     // of tokens in a block
  int64_t steps = 8;     // of a turn
  int64_t panels = 16;   // of a slab
  bool prefetch = true;  // the lines of the output, and the next slab
};

struct Bf16Unit {
  int64_t token;  // the first of 16 kTiles
  int64_t row;    // the first of 16 kPanels
  const uint8_t* x;
  const uint8_t* w;
  float* sums;  // [kTiles][kPanels][16][16]
};
// A finished unit whose sums are in memory.
struct Bf16Results {
  Bf16Unit unit;
  int tiles = 0;
  int panels = 0;
};

template <int kTiles, int kPanels>
[[gnu::always_inline]] inline void load_unit(const float* sums) {
  _tile_loadd(0, sums, 64);
  if constexpr (kPanels == 2) _tile_loadd(1, sums + 256, 64);
  if constexpr (kTiles == 2) _tile_loadd(2, sums + 256 * kPanels, 64);
  if constexpr (kTiles == 2 && kPanels == 2) _tile_loadd(3, sums + 768, 64);
}
// Tiles of tokens and panels are so many floats apart.
template <int kTiles, int kPanels>
[[gnu::always_inline]] inline void store_unit(float* to, int64_t tile, int64_t panel, int64_t stride_bytes) {
  _tile_stored(0, to, stride_bytes);
  if constexpr (kPanels == 2) _tile_stored(1, to + panel, stride_bytes);
  if constexpr (kTiles == 2) _tile_stored(2, to + tile, stride_bytes);
  if constexpr (kTiles == 2 && kPanels == 2) _tile_stored(3, to + tile + panel, stride_bytes);
}
template <int kTiles, int kPanels>
[[gnu::always_inline]] inline void multiply_step(const uint8_t* x, const uint8_t* w, int64_t panel_bytes) {
  _tile_loadd(4, x, 64);
  _tile_loadd(6, w, 64);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kPanels == 2) {
    _tile_loadd(7, w + panel_bytes, 64);
    _tile_dpbf16ps(1, 4, 7);
  }
  if constexpr (kTiles == 2) {
    _tile_loadd(4, x + panel_bytes, 64);
    _tile_dpbf16ps(2, 4, 6);
    if constexpr (kPanels == 2) _tile_dpbf16ps(3, 4, 7);
  }
}

// The results into the output, token by token: what is added to the output, and what is no whole unit.
inline void finish_results(const LinearTask& task, const Bf16Results& results) {
  memory_barrier();
  for (int tile = 0; tile < results.tiles; ++tile) {
    for (int64_t t = 0; t < kTileTokens; ++t) {
      const int64_t token = results.unit.token + tile * kTileTokens + t;
      if (token >= task.tokens) break;
      for (int p = 0; p < results.panels; ++p) {
        const float* sums = results.unit.sums + ((tile * results.panels + p) * kTileTokens + t) * kPanelRows;
        store_panel_rows(task, token, results.unit.row + p * kPanelRows, _mm512_load_ps(sums));
      }
    }
  }
  memory_barrier();
}

// Prefetches weights that follow, a few lines in each step.
struct Bf16Ahead {
  const uint8_t* at;
  const uint8_t* end;
  int64_t lines;  // in a step
  [[gnu::always_inline]] inline void step() {
    for (int64_t i = 0; i < lines && at < end; ++i, at += 64) _mm_prefetch(at, _MM_HINT_T1);
  }
};

// Steps [first, first + count) of a unit. The output of an earlier unit that is stored token by token is stored after
// them: by then its sums have reached the cache.
template <int kTiles, int kPanels, TileScheduleBf16 kSchedule>
inline void multiply_unit(const LinearTask& task, const Bf16Unit& u, int64_t first, int64_t count, Bf16Ahead& ahead,
                          Bf16Results& waiting) {
  constexpr int64_t kLines = kTiles * kTileTokens * kPanels;  // of the output
  const int64_t panel_bytes = bf16_panel_bytes(task.k);
  const bool last = first + count == bf16_steps(task.k);
  if (first == 0) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    load_unit<kTiles, kPanels>(u.sums);
  }
  const int64_t lines = kSchedule.prefetch && last ? (kLines + count - 1) / count : 0;
  int64_t line = 0;
  for (int64_t s = first; s < first + count; ++s) {
    multiply_step<kTiles, kPanels>(u.x + s * kTileBytes, u.w + s * kTileBytes, panel_bytes);
    if constexpr (kSchedule.prefetch) {
      ahead.step();
      for (const int64_t end = line + lines; line < end; ++line) {
        const int64_t token = u.token + line / kPanels;
        if (token >= task.tokens) break;
        __builtin_prefetch(task.out + token * task.out_stride + u.row + line % kPanels * kPanelRows, 1);
      }
    }
  }
  constexpr int64_t kTileSums = kTileTokens * kPanelRows;
  if (!last) {
    store_unit<kTiles, kPanels>(u.sums, kPanels * kTileSums, kTileSums, 64);
    return;
  }
  if (!task.accumulate && u.row + kPanels * kPanelRows <= task.row_end &&
      u.token + kTiles * kTileTokens <= task.tokens) {
    store_unit<kTiles, kPanels>(task.out + u.token * task.out_stride + u.row, kTileTokens * task.out_stride, kPanelRows,
                                task.out_stride * 4);
    return;
  }
  store_unit<kTiles, kPanels>(u.sums, kPanels * kTileSums, kTileSums, 64);
  finish_results(task, waiting);
  waiting = {u, kTiles, kPanels};
}

template <TileScheduleBf16 kSchedule>
inline constexpr int64_t kBf16SumBytes = kSchedule.tiles * kSchedule.panels * kTileBytes;

// Some columns of all outputs of a block of tokens and a slab.
template <TileScheduleBf16 kSchedule>
inline void multiply_turn(const LinearTask& task, const Bf16Unit& block, int64_t tiles, int64_t panels, int64_t first,
                          int64_t count, Bf16Ahead& ahead, Bf16Results& waiting) {
  const int64_t panel_bytes = bf16_panel_bytes(task.k);
  float* sums = block.sums;
  for (int64_t p = 0; p < panels; p += 2) {
    for (int64_t t = 0; t < tiles; t += 2, sums += kTileBytes) {
      const Bf16Unit u = {block.token + t * kTileTokens, block.row + p * kPanelRows, block.x + t * panel_bytes,
                          block.w + p * panel_bytes, sums};
      if (t + 1 < tiles && p + 1 < panels) {
        multiply_unit<2, 2, kSchedule>(task, u, first, count, ahead, waiting);
      } else if (t + 1 < tiles) {
        multiply_unit<2, 1, kSchedule>(task, u, first, count, ahead, waiting);
      } else if (p + 1 < panels) {
        multiply_unit<1, 2, kSchedule>(task, u, first, count, ahead, waiting);
      } else {
        multiply_unit<1, 1, kSchedule>(task, u, first, count, ahead, waiting);
      }
    }
  }
}

template <TileScheduleBf16 kSchedule>
inline void multiply_many_bf16(const LinearTask& task) {
  const auto least = [](int64_t a, int64_t b) { return a < b ? a : b; };
  const int64_t panel_bytes = bf16_panel_bytes(task.k);
  const int64_t steps = bf16_steps(task.k);
  const int64_t tiles = token_tiles(task.tokens);
  const auto* x = static_cast<const uint8_t*>(task.activations);
  const auto* w = static_cast<const uint8_t*>(task.weight);
  const int64_t last_panel = (task.row_end + kPanelRows - 1) / kPanelRows;
  Bf16Results waiting;
  configure_tiles(64);
  for (int64_t p = task.row_begin / kPanelRows; p < last_panel; p += kSchedule.panels) {
    const int64_t panels = least(kSchedule.panels, last_panel - p);
    // 32 lines of weights are read in a step, and again for each two tiles of tokens.
    Bf16Ahead ahead = {w + (p + panels) * panel_bytes,
                       w + least(last_panel, p + panels + kSchedule.panels) * panel_bytes, 64 / (tiles + 1) + 1};
    for (int64_t t = 0; t < tiles; t += kSchedule.tiles) {
      const Bf16Unit block = {t * kTileTokens, p * kPanelRows, x + t * panel_bytes, w + p * panel_bytes,
                              static_cast<float*>(task.scratch)};
      for (int64_t s = 0; s < steps; s += kSchedule.steps) {
        multiply_turn<kSchedule>(task, block, least(kSchedule.tiles, tiles - t), panels, s,
                                 least(kSchedule.steps, steps - s), ahead, waiting);
      }
      finish_results(task, waiting);
      waiting = {};
    }
  }
  _tile_release();
}

// ---- all

inline constexpr TileScheduleBf16 kBf16Schedule = {};

inline int64_t amx_bf16_scratch(int64_t /*k*/, int64_t tokens) {
  return tokens <= kTileTokens ? 0 : kBf16SumBytes<kBf16Schedule>;
}
inline void run_amx_bf16(const LinearTask& task) noexcept {
  if (task.tokens <= kTileTokens) return multiply_few_bf16(task);
  multiply_many_bf16<kBf16Schedule>(task);
}
inline void fill_amx_bf16(KernelTable& table, const char* name) {
  table.linear[static_cast<int>(DType::bf16)] = {
      name, &tile_panel_layout(), &kBf16Tiles, kPanelRows, amx_bf16_scratch, run_amx_bf16, kPrefetchTokens};
}

}  // namespace
}  // namespace inferno
