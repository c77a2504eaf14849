// The cache blocking of a task: some panels and all tokens.
#pragma once

#include "backend/cpu/kernels/x86/amx_panel.h"

namespace inferno {
namespace {

// Rows [row, row + 16 * count) at `panels`: unpacked, in L2, or as they are stored.
struct Slab {
  const LinearTask& task;
  int64_t row;
  int64_t count;
  const uint8_t* panels;
  int64_t panel_bytes;
  uint8_t* results;  // of tile products
  float* sums;       // running sums
  // The stored panels that come next, to be prefetched meanwhile.
  const uint8_t* next = nullptr;
  int64_t next_count = 0;
  int64_t steps = 0;  // while which that is done

  // The share of a step of the next panels, into L2. All panels in turns: a core reads several streams faster than
  // one.
  [[gnu::always_inline]] void prefetch_next(int64_t step) const {
    if (next_count == 0 || step >= steps) return;
    const int64_t lines = panel_bytes / 64;
    for (int64_t line = lines * step / steps; line < lines * (step + 1) / steps; ++line) {
      for (int64_t panel = 0; panel < next_count; ++panel) {
        _mm_prefetch(next + panel * panel_bytes + line * 64, _MM_HINT_T1);
      }
    }
  }
};

// Prefetches the lines of the output that tiles and panels of a slab will be written to. All tokens times all rows are
// larger than a core's own caches.
[[gnu::always_inline]] inline void prefetch_outputs(const Slab& slab, int64_t tile, int64_t tiles, int64_t panel,
                                                    int64_t panels) {
  const int64_t begin = tile * kTileTokens;
  const int64_t end = begin + tiles * kTileTokens < slab.task.tokens ? begin + tiles * kTileTokens : slab.task.tokens;
  const float* out = slab.task.out + slab.row + panel * kPanelRows;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t p = 0; p < panels; ++p) __builtin_prefetch(out + t * slab.task.out_stride + p * kPanelRows, 1);
  }
}

// The finished sums of 16 tokens and a panel, kStride floats from token to token, into the output.
template <int64_t kStride>
inline void finish_tile(const Slab& slab, int64_t tile, int64_t panel, const float* sums) {
  const int64_t token = tile * kTileTokens;
  for (int t = 0; t < kTileTokens && token + t < slab.task.tokens; ++t) {
    store_panel_rows(slab.task, token + t, slab.row + panel * kPanelRows, _mm512_loadu_ps(sums + t * kStride));
  }
}

}  // namespace
}  // namespace inferno
