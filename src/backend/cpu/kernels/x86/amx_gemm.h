// Quantized weights times many tokens with the matrix tiles: 16 tokens x 16 rows x up to 64 columns in one
// instruction, sums in int32. Bit-equal to quant/numerics.h.
//
// The sums leave the tiles through memory, and only then are scaled in float. A tile store is not forwarded to a vector
// load: the load stalls until the store has reached the cache, so several tile products are computed before the first
// of them is scaled.
//
// Panels of several times 16 rows, a slab, are unpacked into L2 and multiplied by all tokens, some tiles of them at a
// time. Q8_0 is stored in panels and needs no unpacking.
//
// The tiles are configured when a kernel starts and released when it ends: a kernel leaves no state in the thread.
#pragma once

#include "backend/cpu/kernels/x86/amx_gemm_256.h"
#include "backend/cpu/kernels/x86/amx_gemm_32_pipelined.h"

namespace inferno {
namespace {

// Panels of a slab: as many as fit L2, so that tokens are reloaded rarely.
inline constexpr int64_t kSlabPanels = 8;
inline constexpr int64_t kSlabBytes = int64_t{512} * 1024;
template <InterleavedFormat kFormat>
inline int64_t slab_panels(int64_t k) {
  if constexpr (kFormat.block == 32) return kSlabPanels;
  const int64_t fitting = kSlabBytes / amx_panel_bytes<kFormat>(k);
  return fitting < 2 ? 2 : fitting < kSlabPanels ? fitting : kSlabPanels;
}

inline constexpr int64_t kAmxResultBytes = kMaxResults32 > kMaxResults256 ? kMaxResults32 : kMaxResults256;
// The running sums of the tiles of tokens that are multiplied together.
inline constexpr int64_t kAmxSumBytes = kSlabPanels * kGroupTiles * kTileTokens * kPanelRows * 4;

// Rows [row, row + 16 * count): blocks of 32 panel after panel, of 256 the panels' first blocks, then their second
// ones, and so on.
template <InterleavedFormat kFormat>
inline void unpack_slab(const LinearTask& task, int64_t row, int64_t count, uint8_t* panels) {
  constexpr int64_t kBytes = AmxPanel<kFormat>::kBytes;
  for (int64_t p = 0; p < count; ++p) {
    if constexpr (kFormat.block == 32) {
      uint8_t* panel = panels + p * amx_panel_bytes<kFormat>(task.k);
      for_panel_blocks<kFormat>(task, row + p * kPanelRows, [=](const uint8_t* block, int half, int64_t b) {
        unpack_amx_half<kFormat>(block, half, panel + b * kBytes);
      });
    } else {
      const uint8_t* first = nullptr;
      for_panel_blocks<kFormat>(task, row + p * kPanelRows, [&](const uint8_t* block, int half, int64_t b) {
        if (half == 0) {
          first = block;
        } else {
          unpack_amx_panel<kFormat>(first, block, panels + (b * count + p) * kBytes);
        }
      });
    }
  }
}

template <InterleavedFormat kFormat>
inline int64_t amx_scratch(int64_t k, int64_t tokens) {
  if (tokens < kAmxTokens<kFormat.block>) return gemm_scratch<kFormat>(k, tokens);
  return kAmxResultBytes + kAmxSumBytes + slab_panels<kFormat>(k) * amx_panel_bytes<kFormat>(k);
}

template <InterleavedFormat kFormat>
inline void run_amx(const LinearTask& task) noexcept {
  if (task.tokens < kAmxTokens<kFormat.block>) return run_gemm<kFormat>(task);
  auto* results = static_cast<uint8_t*>(task.scratch);
  uint8_t* sums = results + kAmxResultBytes;
  uint8_t* panels = sums + kAmxSumBytes;
  const int64_t most = slab_panels<kFormat>(task.k);
  configure_tiles(kFormat.block == 32 ? 32 : 64);
  for (int64_t row = task.row_begin; row < task.row_end; row += most * kPanelRows) {
    const int64_t left = (task.row_end - row + kPanelRows - 1) / kPanelRows;
    const int64_t count = left < most ? left : most;
    const Slab slab = {task, row, count, panels, amx_panel_bytes<kFormat>(task.k), results, as<float>(sums)};
    unpack_slab<kFormat>(task, row, count, panels);
    memory_barrier();
    if constexpr (kFormat.block == 32) {
      multiply_slab_32<AmxPanel<kFormat>>(slab);
    } else {
      multiply_slab_256<kFormat>(slab);
    }
    memory_barrier();
  }
  _tile_release();
}

inline constexpr int64_t kStoredSlabPanels = kSlabPanels;

inline int64_t stored_panel_scratch(int64_t k, int64_t tokens) {
  return tokens <= kPanelStreamTokens ? tokens * (k / 32) * 4 : kAmxResultBytes + kAmxSumBytes;
}

inline void run_stored_panels(const LinearTask& task) noexcept {
  if (task.tokens <= kPanelStreamTokens) return stream_byte_panels(task);
  auto* results = static_cast<uint8_t*>(task.scratch);
  uint8_t* sums = results + kAmxResultBytes;
  const int64_t panel_bytes = byte_panel_bytes(task.k);
  const auto panel_at = [&](int64_t row) {
    return static_cast<const uint8_t*>(task.weight) + row / kPanelRows * panel_bytes;
  };
  const auto count_at = [&](int64_t row) {
    const int64_t left = (task.row_end - row + kPanelRows - 1) / kPanelRows;
    return left < 0 ? 0 : left < kStoredSlabPanels ? left : kStoredSlabPanels;
  };
  configure_tiles(32);
  for (int64_t row = task.row_begin; row < task.row_end; row += kStoredSlabPanels * kPanelRows) {
    const int64_t next = row + kStoredSlabPanels * kPanelRows;
    const Slab slab = {
        task, row, count_at(row), panel_at(row), panel_bytes, results, as<float>(sums), panel_at(next), count_at(next)};
    memory_barrier();
    multiply_slab_32<StoredPanel>(slab);
    memory_barrier();
  }
  _tile_release();
}

}  // namespace
}  // namespace inferno
