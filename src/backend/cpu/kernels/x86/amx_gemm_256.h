// Products of blocks of 256 columns: the tiles add up a whole block, then it is scaled in float.
//
// A unit of work: one tile of tokens, one block of one panel. The loop over units is software-pipelined: while a unit
// is multiplied an earlier one, whose results have reached the cache, is scaled.
//
// A unit is small and uses few tiles, since a core may serve two hardware threads that share its first-level cache and
// its registers. The tile of tokens is the innermost index: a block of a panel is multiplied by some of them while it
// is in L1, and their blocks stay there for all panels of the slab.
#pragma once

#include "backend/cpu/kernels/x86/amx_slab.h"

namespace inferno {
namespace {

inline constexpr int64_t kUnitResults = 2 * kTileBytes;
inline constexpr int64_t kUnitsAhead = 2;  // that are multiplied before the first is scaled
inline constexpr int64_t kUnitsInFlight = kUnitsAhead + 1;
inline constexpr int64_t kMaxResults256 = kUnitsInFlight * kUnitResults;
inline constexpr int64_t kGroupTiles = 4;  // that are multiplied by a block of a panel

struct Unit256 {
  int64_t tile, block, panel;
  const uint8_t* x;
  const uint8_t* w;
  float* sums;  // [16 tokens][16 rows]
  bool last;    // of its chains
};

// Columns [64 i, 64 i + 64) of a unit: tiles 0 and 1 collect the sums of the two planes.
template <InterleavedFormat kFormat>
[[gnu::always_inline]] inline void multiply_quarter(const Unit256& u, int64_t i) {
  using P = AmxPanel<kFormat>;
  _tile_loadd(4, u.x + kTileBytes * i, 64);
  _tile_loadd(6, u.w + kTileBytes * i, 64);
  _tile_dpbssd(0, 4, 6);
  if constexpr (P::kPlanes == 2) {
    _tile_loadd(6, u.w + P::kPlaneBytes + kTileBytes * i, 64);
    _tile_dpbssd(1, 4, 6);
  }
}

// What scaling reads of a block of a panel.
template <InterleavedFormat kFormat>
struct PanelScales256 {
  using P = AmxPanel<kFormat>;
  __m512 d = _mm512_setzero_ps();
  __m512 m = _mm512_setzero_ps();
  __m512i mins[P::kSubs / 2];

  [[gnu::always_inline]] void load(const uint8_t* w) {
    d = _mm512_loadu_ps(floats(w + P::kD));
    if constexpr (kFormat.minimums) {
      m = _mm512_loadu_ps(floats(w + P::kM));
#pragma GCC unroll 8
      for (int i = 0; i < P::kSubs / 2; ++i) mins[i] = load_512(w + P::kMins + 64 * i);
    }
  }
};

// Four tokens x of a unit whose products are in `from`, added to sums.
template <InterleavedFormat kFormat, int kPart>
[[gnu::always_inline]] inline void scale_quarter(const uint8_t* x, const PanelScales256<kFormat>& w,
                                                 const uint8_t* from, float* sums) {
  using P = AmxPanel<kFormat>;
  using Tile = TokenTile<256>;
  // A shift by 8 bits; shifts proper would compete with the float arithmetic.
  const __m512i up =
      _mm512_broadcast_i32x4(_mm_setr_epi8(-128, 0, 1, 2, -128, 4, 5, 6, -128, 8, 9, 10, -128, 12, 13, 14));
#pragma GCC unroll 4
  for (int r = 4 * kPart; r < 4 * kPart + 4; ++r) {
    const __m512 dx = _mm512_set1_ps(floats(x + Tile::kD)[r]);
    __m512i isum = load_512(from + 64 * r);
    if constexpr (P::kPlanes == 2) {
      isum = _mm512_add_epi32(isum, _mm512_shuffle_epi8(load_512(from + kTileBytes + 64 * r), up));
    }
    float* sum = sums + r * kPanelRows;
    __m512 product = chain_512(_mm512_loadu_ps(sum), isum, w.d, dx);
    if constexpr (kFormat.minimums) {
      const uint8_t* q_sums = x + (kFormat.sub == 32 ? Tile::kSums32 : Tile::kSums16) + r * 2 * P::kSubs;
      __m512i msum = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int i = 0; i < P::kSubs / 2; ++i) msum = dot_pair(msum, w.mins[i], q_sums + 4 * i);
      product = minus_chain_512(product, msum, w.m, dx);
    }
    _mm512_storeu_ps(sum, product);
  }
}

template <InterleavedFormat kFormat>
class Pipeline256 {
 public:
  explicit Pipeline256(const Slab& slab) : slab_(slab) {}

  void multiply(const Unit256& unit) {
    units_[number_ % kUnitsInFlight] = unit;
    if (number_ < kUnitsAhead) {
      step<true, false>();
    } else {
      step<true, true>();
    }
  }
  void finish() {
    for (int64_t i = 0; i < kUnitsAhead; ++i) {
      if (number_ >= kUnitsAhead) step<false, true>();
      ++number_;
    }
  }

 private:
  [[nodiscard]] uint8_t* results(int64_t number) const {
    return slab_.results + number % kUnitsInFlight * kUnitResults;
  }

  // Unit number_ is multiplied, unless there are no more, and the one kUnitsAhead before it scaled. Both are copies,
  // which stores do not change.
  template <bool kMultiply, bool kScale>
  void step() {
    const Unit256 now = units_[number_ % kUnitsInFlight];
    const int64_t number = kScale ? number_ - kUnitsAhead : 0;
    const Unit256 old = units_[number % kUnitsInFlight];
    const uint8_t* from = results(number);
    uint8_t* to = results(number_);
    PanelScales256<kFormat> w;
    if constexpr (kScale) {
      w.load(old.w);
      if (old.block == 0) {
#pragma GCC unroll 16
        for (int r = 0; r < kTileTokens; ++r) _mm512_storeu_ps(old.sums + r * kPanelRows, _mm512_setzero_ps());
      }
    }
    if constexpr (kMultiply) {
      _tile_zero(0);
      _tile_zero(1);
    }
    const auto quarter = [&]<int kPart>() __attribute__((always_inline)) {
      if constexpr (kMultiply) multiply_quarter<kFormat>(now, kPart);
      if constexpr (kScale) scale_quarter<kFormat, kPart>(old.x, w, from, old.sums);
    };
    quarter.template operator()<0>();
    quarter.template operator()<1>();
    quarter.template operator()<2>();
    quarter.template operator()<3>();
    if constexpr (kMultiply) {
      _tile_stored(0, to, 64);
      if constexpr (AmxPanel<kFormat>::kPlanes == 2) _tile_stored(1, to + kTileBytes, 64);
    }
    memory_barrier();
    if constexpr (kScale) {
      if (old.last) finish_tile<kPanelRows>(slab_, old.tile, old.panel, old.sums);
    }
    if constexpr (kMultiply) ++number_;
  }

  const Slab& slab_;
  Unit256 units_[kUnitsInFlight] = {};  // by their number modulo kUnitsInFlight
  int64_t number_ = 0;
};

// The slab holds the panels' first blocks, then their second ones, and so on.
template <InterleavedFormat kFormat, int64_t kTiles = kGroupTiles>
inline void multiply_slab_256(const Slab& slab) {
  const int64_t tiles = token_tiles(slab.task.tokens);
  const int64_t blocks = slab.task.k / 256;
  const int64_t tile_bytes = token_tile_bytes<256>(slab.task.k);
  Pipeline256<kFormat> pipeline(slab);
  for (int64_t first = 0; first < tiles; first += kTiles) {
    const int64_t end = first + kTiles < tiles ? first + kTiles : tiles;
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t panel = 0; panel < slab.count; ++panel) {
        for (int64_t tile = first; tile < end; ++tile) {
          // In time for the last block, whose results fill these lines.
          if (block + 2 == blocks) prefetch_outputs(slab, tile, 1, panel, 1);
          pipeline.multiply(
              {tile, block, panel,
               static_cast<const uint8_t*>(slab.task.activations) + tile * tile_bytes + block * TokenTile<256>::kBytes,
               slab.panels + (block * slab.count + panel) * AmxPanel<kFormat>::kBytes,
               slab.sums + ((tile - first) * slab.count + panel) * kTileTokens * kPanelRows, block + 1 == blocks});
        }
      }
    }
  }
  pipeline.finish();
}

}  // namespace
}  // namespace inferno
