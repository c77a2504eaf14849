// Quantized weights times many tokens with the matrix tiles: 16 tokens x 16 rows x up to 64 columns in one
// instruction, sums in int32. Bit-equal to quant/numerics.h.
//
// The sums leave the tiles through memory, and only then are scaled in float. A vector load that finds its data in a
// tile store that is still under way waits until the store has reached the cache, so the tile products run ahead of the
// scaling by more than the processor looks ahead. In between the two kinds of work alternate, block by block: they need
// different units and so share the time.
//
// Panels of up to kSlabPanels * 16 rows are unpacked into the second-level cache and meet all tokens, a tile or two
// tiles of them at a time, whose activations stay in the first-level cache while the panels pass.
//
// The tiles are configured when a kernel starts and released when it ends: a kernel leaves no state in the thread.
#pragma once

#include "backend/cpu/kernels/x86/amx_panel.h"

namespace inferno {
namespace {

inline constexpr int64_t kSlabPanels = 4;

// A slab: rows [row, row + 16 * count) unpacked at `panels`.
struct Slab {
  const LinearTask& task;
  int64_t row;
  int64_t count;
  const uint8_t* panels;
  int64_t panel_bytes;
  uint8_t* results;  // the ring of tile results
  float* sums;       // kAmxSumBytes: chains that are not finished
};

// ---- blocks of 32
// A unit of work: one tile of tokens, one panel, a chunk of blocks that keeps the tokens in the first-level cache.

inline constexpr int64_t kChunkBlocks = 32;
inline constexpr int64_t kGroupsAhead = 2;  // of kTileGroup blocks each
inline constexpr int64_t kRing32 = kGroupsAhead + 1;

struct Unit32 {
  const uint8_t* x;
  const uint8_t* w;
  int64_t tile, chunk, panel;
  int64_t blocks;
};

template <InterleavedFormat kFormat>
inline Unit32 unit_32(const Slab& slab, int64_t number) {
  const int64_t k_blocks = slab.task.k / 32;
  const int64_t chunks = (k_blocks + kChunkBlocks - 1) / kChunkBlocks;
  Unit32 u;
  u.panel = number % slab.count;
  u.chunk = number / slab.count % chunks;
  u.tile = number / slab.count / chunks;
  const int64_t first = u.chunk * kChunkBlocks;
  u.blocks = k_blocks - first < kChunkBlocks ? k_blocks - first : kChunkBlocks;
  u.x = static_cast<const uint8_t*>(slab.task.activations) + u.tile * token_tile_bytes<32>(slab.task.k) +
        first * TokenTile<32>::kBytes;
  u.w = slab.panels + u.panel * slab.panel_bytes + first * AmxPanel<kFormat>::kBytes;
  return u;
}

// One block of a unit added to the sums of 16 tokens. tile: its product.
template <InterleavedFormat kFormat>
[[gnu::always_inline]] inline void scale_32(const uint8_t* x, const uint8_t* w, const uint8_t* tile,
                                            __m512 (&sums)[kTileTokens]) {
  const __m512 dw = _mm512_loadu_ps(floats(w + AmxPanel<kFormat>::kD));
  const float* dx = floats(x + TokenTile<32>::kD);
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t)
    sums[t] = chain_512(sums[t], load_512(tile + 64 * t), dw, _mm512_set1_ps(dx[t]));
}

// The products of the group at (next_x, next_w) into `to`; meanwhile the group at (x, w), whose products are in `from`,
// is scaled: all of it or, where the blocks end, `count` of it.
template <InterleavedFormat kFormat>
[[gnu::always_inline]] inline void step_32(const uint8_t* next_x, const uint8_t* next_w, uint8_t* to, const uint8_t* x,
                                           const uint8_t* w, const uint8_t* from, int64_t count,
                                           __m512 (&sums)[kTileTokens]) {
  constexpr int64_t kX = TokenTile<32>::kBytes;
  constexpr int64_t kW = AmxPanel<kFormat>::kBytes;
  _tile_loadd(4, next_x, 32);
  _tile_loadd(6, next_w, 64);
  _tile_zero(0);
  _tile_dpbssd(0, 4, 6);
  _tile_stored(0, to, 64);
  if (count > 0) scale_32<kFormat>(x, w, from, sums);
  _tile_loadd(5, next_x + kX, 32);
  _tile_loadd(7, next_w + kW, 64);
  _tile_zero(1);
  _tile_dpbssd(1, 5, 7);
  _tile_stored(1, to + kTileBytes, 64);
  if (count > 1) scale_32<kFormat>(x + kX, w + kW, from + kTileBytes, sums);
  _tile_loadd(4, next_x + 2 * kX, 32);
  _tile_loadd(6, next_w + 2 * kW, 64);
  _tile_zero(2);
  _tile_dpbssd(2, 4, 6);
  _tile_stored(2, to + 2 * kTileBytes, 64);
  if (count > 2) scale_32<kFormat>(x + 2 * kX, w + 2 * kW, from + 2 * kTileBytes, sums);
  _tile_loadd(5, next_x + 3 * kX, 32);
  _tile_loadd(7, next_w + 3 * kW, 64);
  _tile_zero(3);
  _tile_dpbssd(3, 5, 7);
  _tile_stored(3, to + 3 * kTileBytes, 64);
  if (count > 3) scale_32<kFormat>(x + 3 * kX, w + 3 * kW, from + 3 * kTileBytes, sums);
}

// The finished main chains of a tile and panel, [16][16] at `sums`, with the minimum chains into the output.
template <InterleavedFormat kFormat>
inline void finish_32(const Slab& slab, const Unit32& u, const float* sums) {
  __m512 minimums[kTileTokens] = {};
  if constexpr (kFormat.minimums) {
    const int64_t first = u.chunk * kChunkBlocks;
    const uint8_t* x = u.x - first * TokenTile<32>::kBytes;
    const uint8_t* w = u.w - first * AmxPanel<kFormat>::kBytes;
    for (int64_t b = 0; b < slab.task.k / 32; ++b, x += TokenTile<32>::kBytes, w += AmxPanel<kFormat>::kBytes) {
      const __m512 m = _mm512_loadu_ps(floats(w + AmxPanel<kFormat>::kM));
      for (int t = 0; t < kTileTokens; ++t) {
        const __m512 dx = _mm512_set1_ps(floats(x + TokenTile<32>::kD)[t]);
        minimums[t] = chain_512(minimums[t], sixteen_columns(x + TokenTile<32>::kSums + 4 * t), m, dx);
      }
    }
  }
  const int64_t token = u.tile * kTileTokens;
  for (int t = 0; t < kTileTokens && token + t < slab.task.tokens; ++t) {
    __m512 product = _mm512_loadu_ps(sums + t * kPanelRows);
    if constexpr (kFormat.minimums) product = _mm512_add_ps(product, minimums[t]);
    put_panel_rows(slab.task, token + t, slab.row + u.panel * kPanelRows, product);
  }
}

template <InterleavedFormat kFormat>
inline void multiply_slab_32(const Slab& slab) {
  constexpr int64_t kX = kTileGroup * TokenTile<32>::kBytes;
  constexpr int64_t kW = kTileGroup * AmxPanel<kFormat>::kBytes;
  const int64_t k_blocks = slab.task.k / 32;
  const int64_t chunks = (k_blocks + kChunkBlocks - 1) / kChunkBlocks;
  const int64_t units = token_tiles(slab.task.tokens) * chunks * slab.count;
  // Where the products are: `ahead` is the next group to be multiplied. Behind the last unit it is multiplied again.
  Unit32 ahead = unit_32<kFormat>(slab, 0);
  int64_t ahead_unit = 0;
  int64_t ahead_block = 0;
  uint8_t* to = slab.results;
  const uint8_t* from = slab.results;
  const auto after = [&slab](auto* slot) {
    return slot + kTileGroup * kTileBytes == slab.results + kRing32 * kTileGroup * kTileBytes
               ? slot - (kRing32 - 1) * kTileGroup * kTileBytes
               : slot + kTileGroup * kTileBytes;
  };
  const auto advance = [&] {
    to = after(to);
    ahead.x += kX;
    ahead.w += kW;
    ahead_block += kTileGroup;
    if (ahead_block < ahead.blocks) return;
    ahead_block = 0;
    if (ahead_unit + 1 < units) ++ahead_unit;
    ahead = unit_32<kFormat>(slab, ahead_unit);
  };
  __m512 sums[kTileTokens] = {};
  for (int64_t i = 0; i < kGroupsAhead; ++i) {
    step_32<kFormat>(ahead.x, ahead.w, to, nullptr, nullptr, nullptr, 0, sums);
    advance();
  }
  for (int64_t number = 0; number < units; ++number) {
    const Unit32 u = unit_32<kFormat>(slab, number);
    float* kept = slab.sums + u.panel * kTileTokens * kPanelRows;
#pragma GCC unroll 16
    for (int t = 0; t < kTileTokens; ++t) {
      sums[t] = u.chunk == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(kept + t * kPanelRows);
    }
    const uint8_t* x = u.x;
    const uint8_t* w = u.w;
    int64_t b = 0;
    for (; b + kTileGroup <= u.blocks; b += kTileGroup, x += kX, w += kW) {
      step_32<kFormat>(ahead.x, ahead.w, to, x, w, from, kTileGroup, sums);
      from = after(from);
      advance();
    }
    if (b < u.blocks) {
      step_32<kFormat>(ahead.x, ahead.w, to, x, w, from, u.blocks - b, sums);
      from = after(from);
      advance();
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTileTokens; ++t) _mm512_storeu_ps(kept + t * kPanelRows, sums[t]);
    if (u.chunk + 1 == chunks) finish_32<kFormat>(slab, u, kept);
  }
}

// ---- blocks of 256
// A unit of work: kTiles (1 or 2) tiles of tokens, one block of one panel.

inline constexpr int64_t kUnitsAhead = 2;
inline constexpr int64_t kRing256 = kUnitsAhead + 1;
inline constexpr int64_t kUnitResults = 4 * kTileBytes;

struct Unit256 {
  const uint8_t* x;  // of the first tile
  const uint8_t* w;
  float* sums;  // [32][16] main, [32][16] minimum
  int64_t token, row;
  bool first, last;
};

template <InterleavedFormat kFormat, int kTiles>
inline Unit256 unit_256(const Slab& slab, int64_t first_tile, int64_t number) {
  const int64_t blocks = slab.task.k / 256;
  const int64_t panel = number % slab.count;
  const int64_t b = number / slab.count % blocks;
  const int64_t tile = first_tile + number / slab.count / blocks * kTiles;
  Unit256 u;
  u.x = static_cast<const uint8_t*>(slab.task.activations) + tile * token_tile_bytes<256>(slab.task.k) +
        b * TokenTile<256>::kBytes;
  u.w = slab.panels + panel * slab.panel_bytes + b * AmxPanel<kFormat>::kBytes;
  u.sums = slab.sums + panel * 4 * kTileTokens * kPanelRows;
  u.token = tile * kTileTokens;
  u.row = slab.row + panel * kPanelRows;
  u.first = b == 0;
  u.last = b + 1 == blocks;
  return u;
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
    float* minimum = sum + 2 * kTileTokens * kPanelRows;
    __m512 product = chain_512(u.first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum), isum, d, dx);
    __m512 less = _mm512_setzero_ps();
    if constexpr (kFormat.minimums) {
      const uint8_t* q_sums = x + (kFormat.sub == 32 ? Tile::kSums32 : Tile::kSums16) + r * 2 * P::kSubs;
      __m512i msum = _mm512_setzero_si512();
      for (int i = 0; i < P::kSubs / 2; ++i) {
        msum = _mm512_dpwssd_epi32(msum, mins[i], sixteen_columns(q_sums + 4 * i));
      }
      less = chain_512(u.first ? _mm512_setzero_ps() : _mm512_loadu_ps(minimum), msum, m, dx);
    }
    if (!u.last) {
      _mm512_storeu_ps(sum, product);
      if constexpr (kFormat.minimums) _mm512_storeu_ps(minimum, less);
    } else if (u.token + t < slab.task.tokens) {
      if constexpr (kFormat.minimums) product = _mm512_sub_ps(product, less);
      put_panel_rows(slab.task, u.token + t, u.row, product);
    }
  }
}

// The products of `next` into `to`; meanwhile `now`, whose products are in `from`, is scaled (null: nothing is).
template <InterleavedFormat kFormat, int kTiles>
inline void step_256(const Slab& slab, const Unit256& next, uint8_t* to, const Unit256* now, const uint8_t* from) {
  constexpr int kQuarter = kTiles * static_cast<int>(kTileTokens) / 4;
  const int64_t tile_bytes = token_tile_bytes<256>(slab.task.k);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int i = 0; i < 4; ++i) {
    products_256<kFormat, kTiles>(next, i, tile_bytes);
    if (now != nullptr) scale_256<kFormat>(slab, *now, from, i * kQuarter, (i + 1) * kQuarter, tile_bytes);
  }
  _tile_stored(0, to, 64);
  if constexpr (AmxPanel<kFormat>::kPlanes == 2) _tile_stored(1, to + kTileBytes, 64);
  if constexpr (kTiles == 2) {
    _tile_stored(2, to + 2 * kTileBytes, 64);
    if constexpr (AmxPanel<kFormat>::kPlanes == 2) _tile_stored(3, to + 3 * kTileBytes, 64);
  }
}

// Tiles [first_tile, first_tile + tiles) of the tokens, kTiles at a time.
template <InterleavedFormat kFormat, int kTiles>
inline void multiply_slab_256(const Slab& slab, int64_t first_tile, int64_t tiles) {
  const int64_t units = tiles / kTiles * (slab.task.k / 256) * slab.count;
  // Units in flight, by number modulo kRing256. Behind the last one it is multiplied again.
  Unit256 unit[kRing256];
  for (int64_t number = 0; number < units + kUnitsAhead; ++number) {
    const int64_t slot = number % kRing256;
    const int64_t behind = (number + 1) % kRing256;  // kUnitsAhead units ago
    unit[slot] = unit_256<kFormat, kTiles>(slab, first_tile, number < units ? number : units - 1);
    step_256<kFormat, kTiles>(slab, unit[slot], slab.results + slot * kUnitResults,
                              number < kUnitsAhead ? nullptr : unit + behind, slab.results + behind * kUnitResults);
  }
}

// ---- all

inline constexpr int64_t kAmxResultBytes = 4 * kUnitResults;
inline constexpr int64_t kAmxSumBytes = kSlabPanels * 4 * kTileTokens * kPanelRows * 4;
static_assert(kAmxResultBytes >= kRing32 * kTileGroup * kTileBytes && kAmxResultBytes >= kRing256 * kUnitResults);

template <InterleavedFormat kFormat>
inline int64_t amx_scratch(int64_t k, int64_t tokens) {
  if (tokens < kAmxTokens) return gemm_scratch<kFormat>(k, tokens);
  return kAmxResultBytes + kAmxSumBytes + kSlabPanels * amx_panel_bytes<kFormat>(k);
}

template <InterleavedFormat kFormat>
inline void run_amx(const LinearTask& task) noexcept {
  if (task.tokens < kAmxTokens) return run_gemm<kFormat>(task);
  auto* results = static_cast<uint8_t*>(task.scratch);
  uint8_t* sums = results + kAmxResultBytes;
  uint8_t* panels = sums + kAmxSumBytes;
  const int64_t panel_bytes = amx_panel_bytes<kFormat>(task.k);
  configure_tiles(kFormat.block == 32 ? 32 : 64);
  for (int64_t row = task.row_begin; row < task.row_end; row += kSlabPanels * kPanelRows) {
    const int64_t left = (task.row_end - row + kPanelRows - 1) / kPanelRows;
    const Slab slab = {task,           row, left < kSlabPanels ? left : kSlabPanels, panels, panel_bytes, results,
                       as<float>(sums)};
    for (int64_t p = 0; p < slab.count; ++p) {
      uint8_t* panel = panels + p * panel_bytes;
      for_panel_blocks<kFormat>(task, row + p * kPanelRows, [panel](const uint8_t* block, int half, int64_t b) {
        unpack_amx_panel<kFormat>(block, half, panel + b * AmxPanel<kFormat>::kBytes);
      });
    }
    memory_barrier();
    if constexpr (kFormat.block == 32) {
      multiply_slab_32<kFormat>(slab);
    } else {
      const int64_t tiles = token_tiles(task.tokens);
      if (tiles > 1) multiply_slab_256<kFormat, 2>(slab, 0, tiles / 2 * 2);
      if (tiles % 2 != 0) multiply_slab_256<kFormat, 1>(slab, tiles - 1, 1);
    }
    memory_barrier();
  }
  _tile_release();
}

}  // namespace
}  // namespace inferno
