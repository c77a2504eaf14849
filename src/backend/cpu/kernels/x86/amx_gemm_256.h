// Products of blocks of 256 columns: the tiles add up a whole block, then it is scaled in float.
//
// A unit of work: kTiles (1 or 2) tiles of tokens, one block of one panel. The loop over units is software-pipelined:
// while a unit is multiplied an earlier one, whose results have reached the cache, is scaled. The panel is the
// innermost index, so that a block of the tokens stays in L1 for all panels of the slab.
#pragma once

#include "backend/cpu/kernels/x86/amx_slab.h"

namespace inferno {
namespace {

struct TileSchedule256 {
  int tiles;
  int depth = 2;  // of the pipeline: units that are multiplied before the first is scaled
};
inline constexpr int64_t kUnitResults = 4 * kTileBytes;
inline constexpr int64_t kMaxResults256 = 4 * kUnitResults;

struct Unit256 {
  int64_t tile, block, panel;
  const uint8_t* x;  // of the first tile
  const uint8_t* w;
  float* sums;  // [32][16]
  bool last;    // of its chains
};

template <InterleavedFormat kFormat>
inline Unit256 unit_256(const Slab& slab, int64_t tile, int64_t block, int64_t panel) {
  return {tile,
          block,
          panel,
          static_cast<const uint8_t*>(slab.task.activations) + tile * token_tile_bytes<256>(slab.task.k) +
              block * TokenTile<256>::kBytes,
          slab.panels + panel * slab.panel_bytes + block * AmxPanel<kFormat>::kBytes,
          slab.sums + panel * 2 * kTileTokens * kPanelRows,
          block + 1 == slab.task.k / 256};
}
// The unit after u; after the last one itself.
template <InterleavedFormat kFormat, TileSchedule256 kSchedule>
inline Unit256 unit_after(const Slab& slab, const Unit256& u, int64_t last_tile) {
  if (u.panel + 1 < slab.count) return unit_256<kFormat>(slab, u.tile, u.block, u.panel + 1);
  if (!u.last) return unit_256<kFormat>(slab, u.tile, u.block + 1, 0);
  return u.tile + kSchedule.tiles < last_tile ? unit_256<kFormat>(slab, u.tile + kSchedule.tiles, 0, 0) : u;
}

// Columns [64 i, 64 i + 64) of a unit.
template <InterleavedFormat kFormat, int kTiles>
[[gnu::always_inline]] inline void products_256(const Unit256& u, int64_t i, int64_t tile_bytes) {
  constexpr bool kHigh = AmxPanel<kFormat>::kPlanes == 2;
  _tile_loadd(4, u.x + kTileBytes * i, 64);
  _tile_loadd(6, u.w + kTileBytes * i, 64);
  _tile_dpbssd(0, 4, 6);
  if constexpr (kHigh) {
    _tile_loadd(7, u.w + AmxPanel<kFormat>::kPlaneBytes + kTileBytes * i, 64);
    _tile_dpbssd(1, 4, 7);
  }
  if constexpr (kTiles == 2) {
    _tile_loadd(5, u.x + tile_bytes + kTileBytes * i, 64);
    _tile_dpbssd(2, 5, 6);
    if constexpr (kHigh) _tile_dpbssd(3, 5, 7);
  }
}

// Tokens [begin, end) of a unit whose products are in `from`; all of one tile.
template <InterleavedFormat kFormat>
[[gnu::always_inline]] inline void scale_256(const Slab& slab, const Unit256& u, const uint8_t* from, int begin,
                                             int end, int64_t tile_bytes) {
  using P = AmxPanel<kFormat>;
  using Tile = TokenTile<256>;
  const int64_t tile = begin / kTileTokens;
  const uint8_t* x = u.x + tile * tile_bytes;
  from += tile * 2 * kTileBytes;
  const __m512 d = _mm512_loadu_ps(floats(u.w + P::kD));
  __m512 m = _mm512_setzero_ps();
  __m512i mins[P::kSubs / 2];
  if constexpr (kFormat.minimums) {
    m = _mm512_loadu_ps(floats(u.w + P::kM));
    for (int i = 0; i < P::kSubs / 2; ++i) mins[i] = load_512(u.w + P::kMins + 64 * i);
  }
  for (int t = begin; t < end; ++t) {
    const int64_t r = t % kTileTokens;
    const __m512 dx = _mm512_set1_ps(floats(x + Tile::kD)[r]);
    __m512i isum = load_512(from + 64 * r);
    if constexpr (P::kPlanes == 2) {
      isum = _mm512_add_epi32(isum, _mm512_slli_epi32(load_512(from + kTileBytes + 64 * r), 7));
    }
    float* sum = u.sums + t * kPanelRows;
    __m512 product = chain_512(u.block == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(sum), isum, d, dx);
    if constexpr (kFormat.minimums) {
      const uint8_t* q_sums = x + (kFormat.sub == 32 ? Tile::kSums32 : Tile::kSums16) + r * 2 * P::kSubs;
      __m512i msum = _mm512_setzero_si512();
      for (int i = 0; i < P::kSubs / 2; ++i) {
        msum = _mm512_dpwssd_epi32(msum, mins[i], sixteen_columns(q_sums + 4 * i));
      }
      product = minus_chain_512(product, msum, m, dx);
    }
    const int64_t token = u.tile * kTileTokens + t;
    if (!u.last) {
      _mm512_storeu_ps(sum, product);
    } else if (token < slab.task.tokens) {
      store_panel_rows(slab.task, token, slab.row + u.panel * kPanelRows, product);
    }
  }
}

// Multiplies `next` into `to` and scales `now`, whose products are in `from` (null, in the prologue: nothing to scale).
template <InterleavedFormat kFormat, TileSchedule256 kSchedule>
inline void step_256(const Slab& slab, const Unit256& next, uint8_t* to, const Unit256* now, const uint8_t* from) {
  constexpr int kQuarter = kSchedule.tiles * static_cast<int>(kTileTokens) / 4;
  const int64_t tile_bytes = token_tile_bytes<256>(slab.task.k);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int i = 0; i < 4; ++i) {
    products_256<kFormat, kSchedule.tiles>(next, i, tile_bytes);
    if (now != nullptr) scale_256<kFormat>(slab, *now, from, i * kQuarter, (i + 1) * kQuarter, tile_bytes);
  }
  _tile_stored(0, to, 64);
  if constexpr (AmxPanel<kFormat>::kPlanes == 2) _tile_stored(1, to + kTileBytes, 64);
  if constexpr (kSchedule.tiles == 2) {
    _tile_stored(2, to + 2 * kTileBytes, 64);
    if constexpr (AmxPanel<kFormat>::kPlanes == 2) _tile_stored(3, to + 3 * kTileBytes, 64);
  }
}

// Tiles [first_tile, last_tile) of the tokens, a multiple of kSchedule.tiles.
template <InterleavedFormat kFormat, TileSchedule256 kSchedule>
inline void multiply_part_256(const Slab& slab, int64_t first_tile, int64_t last_tile) {
  constexpr int64_t kRing = kSchedule.depth + 1;
  const int64_t units = (last_tile - first_tile) / kSchedule.tiles * (slab.task.k / 256) * slab.count;
  // Units in flight, by number modulo kRing. The epilogue multiplies the last one again.
  Unit256 unit[kRing];
  Unit256 next = unit_256<kFormat>(slab, first_tile, 0, 0);
  for (int64_t number = 0; number < units + kSchedule.depth; ++number) {
    const int64_t slot = number % kRing;
    const int64_t old = (number + 1) % kRing;  // kSchedule.depth units earlier
    unit[slot] = next;
    next = unit_after<kFormat, kSchedule>(slab, next, last_tile);
    step_256<kFormat, kSchedule>(slab, unit[slot], slab.results + slot * kUnitResults,
                                 number < kSchedule.depth ? nullptr : unit + old, slab.results + old * kUnitResults);
  }
}

template <InterleavedFormat kFormat>
inline void multiply_slab_256(const Slab& slab) {
  const int64_t tiles = token_tiles(slab.task.tokens);
  if (tiles > 1) multiply_part_256<kFormat, TileSchedule256{2}>(slab, 0, tiles / 2 * 2);
  if (tiles % 2 != 0) multiply_part_256<kFormat, TileSchedule256{1}>(slab, tiles - 1, tiles);
}

}  // namespace
}  // namespace inferno
