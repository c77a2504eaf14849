// Quantized weights times many tokens with the matrix tiles: 16 tokens x 16 rows x up to 64 columns in one
// instruction, sums in int32. Bit-equal to quant/numerics.h.
//
// The sums leave the tiles through memory, and only then are scaled in float. A vector load that finds its data in a
// tile store that is still under way waits until the store has reached the cache, so some tile products are made before
// the first of them is scaled.
//
// Panels of several times 16 rows, a slab, are unpacked into the second-level cache and meet all tokens, up to two
// tiles of them at a time.
//
// The tiles are configured when a kernel starts and released when it ends: a kernel leaves no state in the thread.
#pragma once

#include "backend/cpu/kernels/x86/amx_panel.h"

namespace inferno {
namespace {

// Rows of a slab: many, so that tokens are fetched seldom, as far as the second-level cache has room.
template <InterleavedFormat kFormat>
inline constexpr int64_t kSlabPanels = kFormat.block == 32 ? 8 : 4;

// A slab: rows [row, row + 16 * count) unpacked at `panels`.
struct Slab {
  const LinearTask& task;
  int64_t row;
  int64_t count;
  const uint8_t* panels;
  int64_t panel_bytes;
  uint8_t* results;  // of tile products
  float* sums;       // chains that are not finished
};

// ---- blocks of 32
// kTiles tiles of tokens x kPanels panels (1 or 2 of each) are multiplied together, so that a tile that was loaded
// meets both of the other side, kGroupBlocks blocks at a time: as many as leave the first-level cache room for the
// rest. The results of a block, [kTiles * 16 tokens][kPanels][16 rows], are then scaled in parts of 16 vectors, whose
// sums stay in registers for all blocks of the group.

inline constexpr int64_t kGroupBlocks = 4;
inline constexpr int64_t kGroupResults = kGroupBlocks * 4 * kTileBytes;

// Sums in tile kTile (0-3) from the tokens in tile 4 + kTile / 2 and the rows in tile 6 + kTile % 2, to memory.
template <int kTile>
[[gnu::always_inline]] inline void multiply_tile(uint8_t* to, int64_t stride) {
  if constexpr (kTile == 0) {
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
    _tile_stored(0, to, stride);
  } else if constexpr (kTile == 1) {
    _tile_zero(1);
    _tile_dpbssd(1, 4, 7);
    _tile_stored(1, to, stride);
  } else if constexpr (kTile == 2) {
    _tile_zero(2);
    _tile_dpbssd(2, 5, 6);
    _tile_stored(2, to, stride);
  } else {
    _tile_zero(3);
    _tile_dpbssd(3, 5, 7);
    _tile_stored(3, to, stride);
  }
}

// The products of one block; the second tile lies tile_bytes behind the first, the second panel panel_bytes.
template <int kTiles, int kPanels>
[[gnu::always_inline]] inline void multiply_block_32(const uint8_t* x, int64_t tile_bytes, const uint8_t* w,
                                                     int64_t panel_bytes, uint8_t* to) {
  constexpr int64_t kStride = kPanels * 64;
  _tile_loadd(4, x, 32);
  _tile_loadd(6, w, 64);
  multiply_tile<0>(to, kStride);
  if constexpr (kPanels == 2) {
    _tile_loadd(7, w + panel_bytes, 64);
    multiply_tile<1>(to + 64, kStride);
  }
  if constexpr (kTiles == 2) {
    _tile_loadd(5, x + tile_bytes, 32);
    multiply_tile<2>(to + kPanels * kTileBytes, kStride);
    if constexpr (kPanels == 2) multiply_tile<3>(to + kPanels * kTileBytes + 64, kStride);
  }
}

// A part of one block: 16 / kPanels tokens, whose scales are dx (and their sums of q 16 values behind), times kPanels
// panels; w is the first panel's block.
template <InterleavedFormat kFormat, int kPanels>
[[gnu::always_inline]] inline void scale_block_32(const float* dx, const uint8_t* w, int64_t panel_bytes,
                                                  const uint8_t* results, __m512 (&sums)[16]) {
  const __m512 dw[2] = {_mm512_loadu_ps(floats(w + AmxPanel<kFormat>::kD)),
                        _mm512_loadu_ps(floats(w + (kPanels - 1) * panel_bytes + AmxPanel<kFormat>::kD))};
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const __m512 token = _mm512_set1_ps(dx[i / kPanels]);
    sums[i] = chain_512(sums[i], load_512(results + 64 * i), dw[i % kPanels], token);
    if constexpr (kFormat.minimums) {
      static_assert(TokenTile<32>::kSums == TokenTile<32>::kD + 64);
      const __m512 m = _mm512_loadu_ps(floats(w + i % kPanels * panel_bytes + AmxPanel<kFormat>::kM));
      sums[i] = chain_512(sums[i], sixteen_columns(dx + 16 + i / kPanels), m, token);
    }
  }
}

// The finished chains of 16 tokens and a panel, kStride floats from token to token, into the output.
template <int64_t kStride>
inline void finish_32(const Slab& slab, int64_t tile, int64_t panel, const float* sums) {
  const int64_t token = tile * kTileTokens;
  for (int t = 0; t < kTileTokens && token + t < slab.task.tokens; ++t) {
    put_panel_rows(slab.task, token + t, slab.row + panel * kPanelRows, _mm512_loadu_ps(sums + t * kStride));
  }
}

// Blocks [first, first + count) of kTiles tiles and kPanels panels, added to sums [kTiles * 16][kPanels][16].
template <InterleavedFormat kFormat, int kTiles, int kPanels>
inline void multiply_group_32(const Slab& slab, int64_t tile, int64_t panel, int64_t first, int64_t count,
                              float* sums) {
  constexpr int64_t kX = TokenTile<32>::kBytes;
  constexpr int64_t kW = AmxPanel<kFormat>::kBytes;
  constexpr int kParts = kTiles * kPanels;
  const int64_t tile_bytes = token_tile_bytes<32>(slab.task.k);
  const uint8_t* x = static_cast<const uint8_t*>(slab.task.activations) + tile * tile_bytes + first * kX;
  const uint8_t* w = slab.panels + panel * slab.panel_bytes + first * kW;
  for (int64_t b = 0; b < count; ++b) {
    multiply_block_32<kTiles, kPanels>(x + b * kX, tile_bytes, w + b * kW, slab.panel_bytes,
                                       slab.results + b * kParts * kTileBytes);
  }
  memory_barrier();
  for (int part = 0; part < kParts; ++part, sums += 16 * kPanelRows) {
    const uint8_t* dx = x + part / kPanels * tile_bytes + TokenTile<32>::kD + part % kPanels * 32;
    __m512 s[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) s[i] = first == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + 16 * i);
    for (int64_t b = 0; b < count; ++b) {
      scale_block_32<kFormat, kPanels>(floats(dx + b * kX), w + b * kW, slab.panel_bytes,
                                       slab.results + (b * kParts + part) * kTileBytes, s);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_ps(sums + 16 * i, s[i]);
  }
  memory_barrier();
}

// Tiles [tile, last_tile) x panels [first_panel, last_panel), kTiles and kPanels at a time.
template <InterleavedFormat kFormat, int kTiles, int kPanels>
inline void multiply_part_32(const Slab& slab, int64_t tile, int64_t last_tile, int64_t first_panel,
                             int64_t last_panel) {
  const int64_t blocks = slab.task.k / 32;
  const auto sums_of = [&](int64_t panel) { return slab.sums + panel * kTiles * kTileTokens * kPanelRows; };
  for (; tile < last_tile; tile += kTiles) {
    for (int64_t first = 0; first < blocks; first += kGroupBlocks) {
      const int64_t count = blocks - first < kGroupBlocks ? blocks - first : kGroupBlocks;
      for (int64_t panel = first_panel; panel < last_panel; panel += kPanels) {
        multiply_group_32<kFormat, kTiles, kPanels>(slab, tile, panel, first, count, sums_of(panel));
      }
    }
    for (int64_t panel = first_panel; panel < last_panel; panel += kPanels) {
      for (int i = 0; i < kTiles * kPanels; ++i) {
        const float* finished = sums_of(panel) + (i / kPanels * kTileTokens * kPanels + i % kPanels) * kPanelRows;
        finish_32<kPanels * kPanelRows>(slab, tile + i / kPanels, panel + i % kPanels, finished);
      }
    }
  }
}

template <InterleavedFormat kFormat>
inline void multiply_slab_32(const Slab& slab) {
  const int64_t tiles = token_tiles(slab.task.tokens);
  const int64_t even_tiles = tiles / 2 * 2;
  const int64_t even_panels = slab.count / 2 * 2;
  multiply_part_32<kFormat, 2, 2>(slab, 0, even_tiles, 0, even_panels);
  multiply_part_32<kFormat, 2, 1>(slab, 0, even_tiles, even_panels, slab.count);
  multiply_part_32<kFormat, 1, 2>(slab, even_tiles, tiles, 0, even_panels);
  multiply_part_32<kFormat, 1, 1>(slab, even_tiles, tiles, even_panels, slab.count);
}

// ---- blocks of 256
// A unit of work: kTiles (1 or 2) tiles of tokens, one block of one panel.

inline constexpr int64_t kUnitsAhead = 2;
inline constexpr int64_t kRing256 = kUnitsAhead + 1;
inline constexpr int64_t kUnitResults = 4 * kTileBytes;

struct Unit256 {
  const uint8_t* x;  // of the first tile
  const uint8_t* w;
  float* sums;  // [32][16]
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
  u.sums = slab.sums + panel * 2 * kTileTokens * kPanelRows;
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
    __m512 product = chain_512(u.first ? _mm512_setzero_ps() : _mm512_loadu_ps(sum), isum, d, dx);
    if constexpr (kFormat.minimums) {
      const uint8_t* q_sums = x + (kFormat.sub == 32 ? Tile::kSums32 : Tile::kSums16) + r * 2 * P::kSubs;
      __m512i msum = _mm512_setzero_si512();
      for (int i = 0; i < P::kSubs / 2; ++i) {
        msum = _mm512_dpwssd_epi32(msum, mins[i], sixteen_columns(q_sums + 4 * i));
      }
      product = minus_chain_512(product, msum, m, dx);
    }
    if (!u.last) {
      _mm512_storeu_ps(sum, product);
    } else if (u.token + t < slab.task.tokens) {
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
static_assert(kAmxResultBytes >= kGroupResults && kAmxResultBytes >= kRing256 * kUnitResults);
// The chains of two tiles of tokens.
template <InterleavedFormat kFormat>
inline constexpr int64_t kAmxSumBytes = kSlabPanels<kFormat> * 2 * kTileTokens * kPanelRows * 4;

template <InterleavedFormat kFormat>
inline int64_t amx_scratch(int64_t k, int64_t tokens) {
  if (tokens < kAmxTokens) return gemm_scratch<kFormat>(k, tokens);
  return kAmxResultBytes + kAmxSumBytes<kFormat> + kSlabPanels<kFormat> * amx_panel_bytes<kFormat>(k);
}

template <InterleavedFormat kFormat>
inline void run_amx(const LinearTask& task) noexcept {
  if (task.tokens < kAmxTokens) return run_gemm<kFormat>(task);
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
