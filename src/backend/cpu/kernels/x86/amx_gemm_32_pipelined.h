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
    const uint8_t* w = nullptr;  // of the first panel
    float* sums = nullptr;
  };
  Group group(int64_t tile, int64_t pass, int64_t panel, int64_t first) const {
    const int64_t left = slab_.task.k / 32 - first;
    return {tile,
            panel,
            first,
            left < kSchedule.blocks ? left : kSchedule.blocks,
            static_cast<const uint8_t*>(slab_.task.activations) + tile * tile_bytes_ + first * kX,
            Panel::at(slab_.panels + panel * slab_.panel_bytes, first),
            slab_.sums + (panel - pass) * 2 * kTileTokens * kPanelRows};
  }

  // A step: `now` is multiplied, `previous` scaled, `next` prefetched. A copy, which stores do not change.
  struct Step {
    const Group now, next, previous;
    int64_t tile_bytes, panel_bytes;
    uint8_t* to;
    const uint8_t* from;
  };

  // Prefetches what block kB of the next group reads: its panels, and the tokens.
  template <int kPart, int kB>
  [[gnu::always_inline]] static void prefetch(const Step& s) {
    if constexpr (kPart < 2) {
      Panel::template prefetch<kB>(s.next.w + kPart * s.panel_bytes);
    } else {
      prefetch_lines<Panel::kMinimums ? kX : TokenTile<32>::kSums>(s.next.x + (kPart - 2) * s.tile_bytes + kB * kX);
    }
  }

  template <int kPart>
  [[gnu::always_inline]] static void part(const Step& s) {
    const uint8_t* dx = s.previous.x + kPart / 2 * s.tile_bytes + TokenTile<32>::kD + kPart % 2 * 32;
    float* kept = s.previous.sums + kPart * 16 * kPanelRows;
    __m512 sums[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      sums[i] = s.previous.first == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(kept + 16 * i);
    }
    const auto one = [&]<int kB>() __attribute__((always_inline)) {
      constexpr int kProduct = kPart * kSchedule.blocks + kB;
      constexpr int kBlock = kProduct / 4;
      if (kBlock < s.now.count) {
        multiply_and_store<kProduct % 4, kSchedule>(s.now.x + kBlock * kX, s.tile_bytes,
                                                    Panel::template levels<kBlock>(s.now.w), s.panel_bytes,
                                                    s.to + kBlock * kBlockResults, kBlock > 0);
      }
      if constexpr (kSchedule.prefetch) {
        if (kPart < 2 || s.next.x != s.now.x) prefetch<kPart, kB>(s);
      }
      if (kB < s.previous.count) {
        scale_block_32<Panel, 2, kB>(floats(dx + kB * kX), s.previous.w, s.panel_bytes,
                                     s.from + (kB * 4 + kPart) * kTileBytes, sums);
      }
    };
    one.template operator()<0>();
    one.template operator()<1>();
    if (s.previous.count == 0) return;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_ps(kept + 16 * i, sums[i]);
  }

  void step(const Group& now, const Group& next) {
    const int64_t blocks = slab_.task.k / 32;
    const Step s = {now,
                    next,
                    previous_,
                    tile_bytes_,
                    slab_.panel_bytes,
                    slab_.results + number_ % 2 * kResults,
                    slab_.results + (number_ + 1) % 2 * kResults};
    if (kSchedule.prefetch && now.first + now.count == blocks) prefetch_outputs(slab_, now.tile, 2, now.panel, 2);
    slab_.prefetch_next(number_);
    part<0>(s);
    part<1>(s);
    part<2>(s);
    part<3>(s);
    if (s.now.count > 0) store_rest<kSchedule>(s.to + (s.now.count - 1) * kBlockResults);
    memory_barrier();
    if (s.previous.count > 0 && s.previous.first + s.previous.count == blocks) {
      for (int i = 0; i < 4; ++i) {
        finish_tile<2 * kPanelRows>(slab_, s.previous.tile + i / 2, s.previous.panel + i % 2,
                                    s.previous.sums + (i / 2 * kTileTokens * 2 + i % 2) * kPanelRows);
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
