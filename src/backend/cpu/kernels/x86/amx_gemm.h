// Quantized weights times many tokens with the matrix tiles: 16 tokens x 16 rows x up to 64 columns in one
// instruction, sums in int32. Bit-equal to quant/numerics.h.
//
// The sums leave the tiles through memory, and only then are scaled in float. A tile store is not forwarded to a vector
// load: the load stalls until the store has reached the cache, so several tile products are computed before the first
// of them is scaled.
//
// Panels of several times 16 rows, a slab, are unpacked into L2 and multiplied by all tokens, up to two tiles of them
// at a time. Q8_0 is stored in panels and needs no unpacking.
//
// The tiles are configured when a kernel starts and released when it ends: a kernel leaves no state in the thread.
#pragma once

#include "backend/cpu/kernels/x86/amx_gemm_256.h"
#include "backend/cpu/kernels/x86/amx_gemm_32_pipelined.h"

namespace inferno {
namespace {

// Panels of a slab: as large as fits L2, so that tokens are reloaded rarely.
template <InterleavedFormat kFormat>
inline constexpr int64_t kSlabPanels = kFormat.block == 32 ? 8 : 4;

inline constexpr int64_t kAmxResultBytes = kMaxResults32 > kMaxResults256 ? kMaxResults32 : kMaxResults256;
// The running sums of two tiles of tokens.
template <InterleavedFormat kFormat>
inline constexpr int64_t kAmxSumBytes = kSlabPanels<kFormat> * 2 * kTileTokens * kPanelRows * 4;

template <InterleavedFormat kFormat>
inline int64_t amx_scratch(int64_t k, int64_t tokens) {
  if (tokens < kAmxTokens<kFormat.block>) return gemm_scratch<kFormat>(k, tokens);
  return kAmxResultBytes + kAmxSumBytes<kFormat> + kSlabPanels<kFormat> * amx_panel_bytes<kFormat>(k);
}

template <InterleavedFormat kFormat>
inline void run_amx(const LinearTask& task) noexcept {
  if (task.tokens < kAmxTokens<kFormat.block>) return run_gemm<kFormat>(task);
  auto* results = static_cast<uint8_t*>(task.scratch);
  uint8_t* sums = results + kAmxResultBytes;
  uint8_t* panels = sums + kAmxSumBytes<kFormat>;
  const int64_t panel_bytes = amx_panel_bytes<kFormat>(task.k);
  configure_tiles(kFormat.block == 32 ? 32 : 64);
  for (int64_t row = task.row_begin; row < task.row_end; row += kSlabPanels<kFormat> * kPanelRows) {
    const int64_t left = (task.row_end - row + kPanelRows - 1) / kPanelRows;
    const int64_t count = left < kSlabPanels<kFormat> ? left : kSlabPanels<kFormat>;
    const Slab slab = {task, row, count, panels, panel_bytes, results, as<float>(sums)};
    for (int64_t p = 0; p < slab.count; ++p) {
      uint8_t* panel = panels + p * panel_bytes;
      for_panel_blocks<kFormat>(task, row + p * kPanelRows, [panel](const uint8_t* block, int half, int64_t b) {
        unpack_amx_panel<kFormat>(block, half, panel + b * AmxPanel<kFormat>::kBytes);
      });
    }
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

inline constexpr int64_t kStoredSlabPanels = kSlabPanels<kFormatQ8_0>;

inline int64_t stored_panel_scratch(int64_t k, int64_t tokens) {
  return tokens <= kPanelStreamTokens ? tokens * (k / 32) * 4 : kAmxResultBytes + kAmxSumBytes<kFormatQ8_0>;
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
