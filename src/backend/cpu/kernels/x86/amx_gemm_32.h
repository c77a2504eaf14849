// Products of blocks of 32 columns: each block of each 16 x 16 outputs leaves the tiles and is scaled in float.
//
// kTiles tiles of tokens x kPanels panels (1 or 2 of each) are multiplied together, so that a loaded tile is multiplied
// by both of the other side, some blocks at a time, a group. The results of a block, [kTiles * 16 tokens][kPanels]
// [16 rows], are then scaled in parts of 16 vectors, whose sums stay in registers for all blocks of the group.
//
// A group of the tokens is multiplied by the panels of a pass one after another; tokens, results and the running sums
// of the pass stay in L1, panels come from L2. While a group is scaled the next one is prefetched.
#pragma once

#include "backend/cpu/kernels/x86/amx_slab.h"

namespace inferno {
namespace {

struct TileSchedule32 {
  int tiles;
  int panels;
  int blocks = 4;        // of a group
  int pass = 4;          // panels
  bool prefetch = true;  // the next group's tokens and panels, and the lines of the output
};
inline constexpr int64_t kMaxResults32 = int64_t{4} * 4 * kTileBytes;

// Product kProduct of a block: which tile of tokens and which panel. Of 2 x 2 each shares one of them with the one
// before it.
template <int kProduct, TileSchedule32 kSchedule>
inline constexpr int kTileOf = kSchedule.panels == 2 ? kProduct / 2 : kProduct;
template <int kProduct, TileSchedule32 kSchedule>
inline constexpr int kPanelOf = kSchedule.panels == 1 ? 0
                                : kProduct < 2        ? kProduct
                                                      : 3 - kProduct;

// The products of a block alternate between tiles 0 and 1, where the last one is always tile 1 if there are several.
template <int kProduct, TileSchedule32 kSchedule>
[[gnu::always_inline]] inline void store_product(uint8_t* block) {
  constexpr int64_t kStride = kSchedule.panels * 64;
  uint8_t* to =
      block + kTileOf<kProduct, kSchedule> * kSchedule.panels * kTileBytes + kPanelOf<kProduct, kSchedule> * 64;
  if constexpr (kProduct % 2 == 0) {
    _tile_stored(0, to, kStride);
  } else {
    _tile_stored(1, to, kStride);
  }
}

// One product of a block: tokens in tile 4, rows in tile 6; and one store. The latency of a product is three times its
// issue interval, so a product is stored after the next one has been multiplied; the first stores the last one of the
// previous block, if there is one. A second tile of tokens is at x + tile_bytes, a second panel at w + panel_bytes.
// More tiles would allow later stores and fewer loads, but cost more (amx_tiles.h).
template <int kProduct, TileSchedule32 kSchedule>
[[gnu::always_inline]] inline void multiply_and_store(const uint8_t* x, int64_t tile_bytes, const uint8_t* w,
                                                      int64_t panel_bytes, uint8_t* block, bool has_previous) {
  constexpr int kProducts = kSchedule.tiles * kSchedule.panels;
  if constexpr (kProduct < kProducts) {
    constexpr int kTile = kTileOf<kProduct, kSchedule>;
    constexpr int kPanel = kPanelOf<kProduct, kSchedule>;
    constexpr int kBefore = kProduct == 0 ? 0 : kProduct - 1;
    if constexpr (kProduct == 0 || kTile != kTileOf<kBefore, kSchedule>) _tile_loadd(4, x + kTile * tile_bytes, 32);
    if constexpr (kProduct == 0 || kPanel != kPanelOf<kBefore, kSchedule>) _tile_loadd(6, w + kPanel * panel_bytes, 64);
    if constexpr (kProduct % 2 == 0) {
      _tile_zero(0);
      _tile_dpbssd(0, 4, 6);
    } else {
      _tile_zero(1);
      _tile_dpbssd(1, 4, 6);
    }
    if constexpr (kProducts == 1) {
      store_product<0, kSchedule>(block);
    } else if constexpr (kProduct == 0) {
      if (has_previous) store_product<kProducts - 1, kSchedule>(block - kProducts * kTileBytes);
    } else {
      store_product<kBefore, kSchedule>(block);
    }
  }
}
// The epilogue: the store that is left after the last block.
template <TileSchedule32 kSchedule>
[[gnu::always_inline]] inline void store_rest(uint8_t* last_block) {
  constexpr int kProducts = kSchedule.tiles * kSchedule.panels;
  if constexpr (kProducts > 1) store_product<kProducts - 1, kSchedule>(last_block);
}

// A part of block kBlock from w on: 16 / kPanels tokens, whose scales are dx (and their sums of q at dx + 16), times
// kPanels panels.
template <typename Panel, int kPanels, int kBlock>
[[gnu::always_inline]] inline void scale_block_32(const float* dx, const uint8_t* w, int64_t panel_bytes,
                                                  const uint8_t* results, __m512 (&sums)[16]) {
  const uint8_t* at[2] = {w, w + (kPanels - 1) * panel_bytes};
  const __m512 dw[2] = {Panel::template d<kBlock>(at[0]), Panel::template d<kBlock>(at[1])};
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const __m512 token = _mm512_set1_ps(dx[i / kPanels]);
    sums[i] = chain_512(sums[i], load_512(results + 64 * i), dw[i % kPanels], token);
    if constexpr (Panel::kMinimums) {
      static_assert(TokenTile<32>::kSums == TokenTile<32>::kD + 64);
      const __m512 m = Panel::template m<kBlock>(at[i % kPanels]);
      sums[i] = chain_512(sums[i], sixteen_columns(dx + 16 + i / kPanels), m, token);
    }
  }
}

// f.operator()<kBlock>() for the blocks of a group.
template <TileSchedule32 kSchedule, typename F>
[[gnu::always_inline]] inline void for_blocks_32(int64_t count, F f) {
  static_assert(kSchedule.blocks <= 4);
  f.template operator()<0>();
  if constexpr (kSchedule.blocks > 1) {
    if (count > 1) f.template operator()<1>();
  }
  if constexpr (kSchedule.blocks > 2) {
    if (count > 2) f.template operator()<2>();
  }
  if constexpr (kSchedule.blocks > 3) {
    if (count > 3) f.template operator()<3>();
  }
}

// A group, and what the next one reads.
struct Group32 {
  int64_t tile, panel;
  int64_t first, count;  // blocks
  const uint8_t* next_w;
  const uint8_t* next_x;  // null: the same as now
};

// A group added to sums [kTiles * 16][kPanels][16].
template <typename Panel, TileSchedule32 kSchedule>
inline void multiply_group_32(const Slab& slab, const Group32& g, float* sums) {
  constexpr int64_t kX = TokenTile<32>::kBytes;
  constexpr int kParts = kSchedule.tiles * kSchedule.panels;
  const int64_t tile_bytes = token_tile_bytes<32>(slab.task.k);
  const int64_t panel_bytes = slab.panel_bytes;
  const uint8_t* x = static_cast<const uint8_t*>(slab.task.activations) + g.tile * tile_bytes + g.first * kX;
  const uint8_t* w = Panel::at(slab.panels + g.panel * panel_bytes, g.first);
  uint8_t* results = slab.results;
  for_blocks_32<kSchedule>(g.count, [&]<int kB>() __attribute__((always_inline)) {
    const uint8_t* levels = Panel::template levels<kB>(w);
    uint8_t* to = results + kB * kParts * kTileBytes;
    multiply_and_store<0, kSchedule>(x + kB * kX, tile_bytes, levels, panel_bytes, to, kB > 0);
    multiply_and_store<1, kSchedule>(x + kB * kX, tile_bytes, levels, panel_bytes, to, kB > 0);
    multiply_and_store<2, kSchedule>(x + kB * kX, tile_bytes, levels, panel_bytes, to, kB > 0);
    multiply_and_store<3, kSchedule>(x + kB * kX, tile_bytes, levels, panel_bytes, to, kB > 0);
  });
  store_rest<kSchedule>(results + (g.count - 1) * kParts * kTileBytes);
  memory_barrier();
  for (int part = 0; part < kParts; ++part, sums += 16 * kPanelRows) {
    const uint8_t* dx = x + part / kSchedule.panels * tile_bytes + TokenTile<32>::kD + part % kSchedule.panels * 32;
    __m512 s[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) s[i] = g.first == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + 16 * i);
    for_blocks_32<kSchedule>(g.count, [&]<int kB>() __attribute__((always_inline)) {
      if constexpr (kSchedule.prefetch) {
        if (part < kSchedule.panels) Panel::template prefetch<kB>(g.next_w + part * panel_bytes);
        const int tile = part - (kParts - kSchedule.tiles);
        if (tile >= 0 && g.next_x != nullptr) prefetch_lines<kX>(g.next_x + tile * tile_bytes + kB * kX);
      }
      scale_block_32<Panel, kSchedule.panels, kB>(floats(dx + kB * kX), w, panel_bytes,
                                                  results + (kB * kParts + part) * kTileBytes, s);
    });
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_ps(sums + 16 * i, s[i]);
  }
  memory_barrier();
}

// The tiles from `tile` on and the panels [panel, end).
struct Pass32 {
  int64_t tile, panel, end;
};

template <typename Panel, TileSchedule32 kSchedule>
inline void multiply_pass_32(const Slab& slab, const Pass32& pass, const Pass32& next_pass) {
  const int64_t blocks = slab.task.k / 32;
  const int64_t tile_bytes = token_tile_bytes<32>(slab.task.k);
  const auto x_at = [&](int64_t tile, int64_t block) {
    return static_cast<const uint8_t*>(slab.task.activations) + tile * tile_bytes + block * TokenTile<32>::kBytes;
  };
  const auto w_at = [&](int64_t panel, int64_t block) {
    return Panel::at(slab.panels + panel * slab.panel_bytes, block);
  };
  const auto sums_of = [&](int64_t panel) {
    return slab.sums + (panel - pass.panel) * kSchedule.tiles * kTileTokens * kPanelRows;
  };
  int64_t step = pass.panel / kSchedule.panels * ((blocks + kSchedule.blocks - 1) / kSchedule.blocks);
  for (int64_t first = 0; first < blocks; first += kSchedule.blocks) {
    const int64_t left = blocks - first;
    for (int64_t panel = pass.panel; panel < pass.end; panel += kSchedule.panels, ++step) {
      if (kSchedule.tiles == 1 && pass.tile == 0) slab.prefetch_next(step);
      // Early enough for lines from the last-level cache.
      if (kSchedule.prefetch && left <= 2 * kSchedule.blocks && (left > kSchedule.blocks || first == 0)) {
        prefetch_outputs(slab, pass.tile, kSchedule.tiles, panel, kSchedule.panels);
      }
      Group32 g = {pass.tile, panel, first, left < kSchedule.blocks ? left : kSchedule.blocks, nullptr, nullptr};
      if (panel + kSchedule.panels < pass.end) {
        g.next_w = w_at(panel + kSchedule.panels, first);
      } else if (left > kSchedule.blocks) {
        g.next_w = w_at(pass.panel, first + kSchedule.blocks);
        g.next_x = x_at(pass.tile, first + kSchedule.blocks);
      } else {
        g.next_w = w_at(next_pass.panel, 0);
        g.next_x = x_at(next_pass.tile, 0);
      }
      multiply_group_32<Panel, kSchedule>(slab, g, sums_of(panel));
    }
  }
  for (int64_t panel = pass.panel; panel < pass.end; panel += kSchedule.panels) {
    for (int i = 0; i < kSchedule.tiles * kSchedule.panels; ++i) {
      const int t = i / kSchedule.panels;
      const int p = i % kSchedule.panels;
      finish_tile<kSchedule.panels * kPanelRows>(
          slab, pass.tile + t, panel + p, sums_of(panel) + (t * kTileTokens * kSchedule.panels + p) * kPanelRows);
    }
  }
}

// Tiles [tile, last_tile) x panels [first_panel, last_panel), multiples of kSchedule.tiles and kSchedule.panels.
template <typename Panel, TileSchedule32 kSchedule>
inline void multiply_part_32(const Slab& slab, int64_t tile, int64_t last_tile, int64_t first_panel,
                             int64_t last_panel) {
  const auto pass_at = [&](int64_t at_tile, int64_t at_panel) {
    return Pass32{at_tile, at_panel, at_panel + kSchedule.pass < last_panel ? at_panel + kSchedule.pass : last_panel};
  };
  if (first_panel == last_panel) return;
  for (; tile < last_tile; tile += kSchedule.tiles) {
    for (int64_t panel = first_panel; panel < last_panel; panel += kSchedule.pass) {
      const Pass32 pass = pass_at(tile, panel);
      const int64_t next_tile = tile + kSchedule.tiles < last_tile ? tile + kSchedule.tiles : tile;
      multiply_pass_32<Panel, kSchedule>(
          slab, pass, pass.end < last_panel ? pass_at(tile, pass.end) : pass_at(next_tile, first_panel));
    }
  }
}

}  // namespace
}  // namespace inferno
