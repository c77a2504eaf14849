// Products of blocks of 32 columns, two tiles of tokens x two panels, software-pipelined: after each product of a group
// a part of a block of the previous group is scaled, so that each hides the latency of the other.
#pragma once

#include "backend/cpu/kernels/x86/amx_gemm_32.h"

namespace inferno {
namespace {

template <typename Panel, TileSchedule32 kSchedule>
class PipelinedProduct32 {
 public:
  // Before the first group there is an empty one: its addresses are computed, not read.
  explicit PipelinedProduct32(const Slab& slab)
      : slab_(slab), tile_bytes_(token_tile_bytes<32>(slab.task.k)), previous_(group(0, 0, 0, 0)) {
    previous_.count = 0;
  }

  // Even numbers of tiles and panels of the slab, from the first of each.
  void run(int64_t tiles, int64_t panels) {
    const int64_t blocks = slab_.task.k / 32;
    Group next = group(0, 0, 0, 0);
    for (int64_t tile = 0; tile < tiles; tile += 2) {
      for (int64_t pass = 0; pass < panels; pass += kSchedule.pass) {
        const int64_t end = pass + kSchedule.pass < panels ? pass + kSchedule.pass : panels;
        for (int64_t first = 0; first < blocks; first += kSchedule.blocks) {
          for (int64_t panel = pass; panel < end; panel += 2) {
            const Group now = next;
            if (panel + 2 < end) {
              next = group(tile, pass, panel + 2, first);
            } else if (first + kSchedule.blocks < blocks) {
              next = group(tile, pass, pass, first + kSchedule.blocks);
            } else {
              next = end < panels ? group(tile, end, end, 0) : group(tile + 2, 0, 0, 0);
            }
            step(now, next);
          }
        }
      }
    }
    step({}, next);
  }

 private:
  static_assert(kSchedule.tiles == 2 && kSchedule.panels == 2 && kSchedule.blocks == 2);
  static constexpr int64_t kX = TokenTile<32>::kBytes;
  static constexpr int64_t kBlockResults = 4 * kTileBytes;
  static constexpr int64_t kResults = kSchedule.blocks * kBlockResults;
  static_assert(2 * kResults <= kMaxResults32);

  struct Group {
    int64_t tile = 0, panel = 0;
    int64_t first = 0, count = 0;  // blocks
    const uint8_t* x = nullptr;
    const uint8_t* w = nullptr;  // the first panel
    float* sums = nullptr;
  };
  Group group(int64_t tile, int64_t pass, int64_t panel, int64_t first) const {
    const int64_t left = slab_.task.k / 32 - first;
    return {tile,
            panel,
            first,
            left < kSchedule.blocks ? left : kSchedule.blocks,
            static_cast<const uint8_t*>(slab_.task.activations) + tile * tile_bytes_ + first * kX,
            slab_.panels + panel * slab_.panel_bytes,
            slab_.sums + (panel - pass) * 2 * kTileTokens * kPanelRows};
  }

  // Prefetches what block kB of the next group reads: its panels, and the tokens.
  template <int kPart, int kB>
  [[gnu::always_inline]] void prefetch(const Group& g) const {
    if constexpr (kPart < 2) {
      Panel::prefetch(g.w + kPart * slab_.panel_bytes, g.first + kB);
    } else {
      prefetch_lines<Panel::kMinimums ? kX : TokenTile<32>::kSums>(g.x + (kPart - 2) * tile_bytes_ + kB * kX);
    }
  }

  template <int kPart>
  [[gnu::always_inline]] void part(const Group& now, const Group& next, uint8_t* to, const uint8_t* from) {
    const uint8_t* dx = previous_.x + kPart / 2 * tile_bytes_ + TokenTile<32>::kD + kPart % 2 * 32;
    float* kept = previous_.sums + kPart * 16 * kPanelRows;
    __m512 s[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      s[i] = previous_.first == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(kept + 16 * i);
    }
    const auto one = [&]<int kB>() __attribute__((always_inline)) {
      constexpr int kProduct = kPart * kSchedule.blocks + kB;
      constexpr int64_t kBlock = kProduct / 4;
      if (kBlock < now.count) {
        multiply_and_store<kProduct % 4, kSchedule>(now.x + kBlock * kX, tile_bytes_,
                                                    Panel::levels(now.w, now.first + kBlock), slab_.panel_bytes,
                                                    to + kBlock * kBlockResults, kBlock > 0);
      }
      if constexpr (kSchedule.prefetch) {
        if (kPart < 2 || next.x != now.x) prefetch<kPart, kB>(next);
      }
      if (kB < previous_.count) {
        scale_block_32<Panel, 2>(floats(dx + kB * kX), previous_.w, slab_.panel_bytes, previous_.first + kB,
                                 from + (kB * 4 + kPart) * kTileBytes, s);
      }
    };
    one.template operator()<0>();
    one.template operator()<1>();
    if (previous_.count == 0) return;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_ps(kept + 16 * i, s[i]);
  }

  // Multiplies `now`, scales the previous group, and prefetches `next`.
  void step(const Group& now, const Group& next) {
    const int64_t blocks = slab_.task.k / 32;
    uint8_t* to = slab_.results + number_ % 2 * kResults;
    const uint8_t* from = slab_.results + (number_ + 1) % 2 * kResults;
    if (kSchedule.prefetch && now.first + now.count == blocks) prefetch_outputs(slab_, now.tile, 2, now.panel, 2);
    slab_.prefetch_next(number_);
    part<0>(now, next, to, from);
    part<1>(now, next, to, from);
    part<2>(now, next, to, from);
    part<3>(now, next, to, from);
    if (now.count > 0) {
      uint8_t* last = to + (now.count - 1) * kBlockResults;
      store_rest<kSchedule>(last);
    }
    memory_barrier();
    if (previous_.count > 0 && previous_.first + previous_.count == blocks) {
      for (int i = 0; i < 4; ++i) {
        finish_32<2 * kPanelRows>(slab_, previous_.tile + i / 2, previous_.panel + i % 2,
                                  previous_.sums + (i / 2 * kTileTokens * 2 + i % 2) * kPanelRows);
      }
    }
    previous_ = now;
    ++number_;
  }

  const Slab& slab_;
  const int64_t tile_bytes_;
  Group previous_;
  int64_t number_ = 0;
};

template <typename Panel, TileSchedule32 kSchedule>
inline void multiply_pipelined_32(const Slab& slab, int64_t tiles, int64_t panels) {
  if (tiles > 0 && panels > 0) PipelinedProduct32<Panel, kSchedule>(slab).run(tiles, panels);
}

inline constexpr TileSchedule32 kPipelined32 = {2, 2, 2, 4, true};

template <typename Panel>
inline void multiply_slab_32(Slab slab) {
  const int64_t tiles = token_tiles(slab.task.tokens);
  const int64_t even_tiles = tiles / 2 * 2;
  const int64_t even_panels = slab.count / 2 * 2;
  // Of all pairs of tiles; of a single one.
  const int64_t blocks = slab.task.k / 32;
  slab.steps = even_panels / 2 * (tiles > 1 ? even_tiles / 2 * ((blocks + 1) / 2) : (blocks + 3) / 4);
  multiply_pipelined_32<Panel, kPipelined32>(slab, even_tiles, even_panels);
  multiply_part_32<Panel, TileSchedule32{2, 1}>(slab, 0, even_tiles, even_panels, slab.count);
  multiply_part_32<Panel, TileSchedule32{1, 2}>(slab, even_tiles, tiles, 0, even_panels);
  multiply_part_32<Panel, TileSchedule32{1, 1}>(slab, even_tiles, tiles, even_panels, slab.count);
}

}  // namespace
}  // namespace inferno
