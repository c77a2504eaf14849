// Partitions a product of some tens of tokens over the blocks of tile_product_kernel, and launches it.
#pragma once

#include "backend/cuda/kernels/narrow_product.cuh"
#include "backend/cuda/kernels/tile_product.cuh"
#include "backend/cuda/kernels/tile_types.h"

namespace inferno::cuda {

template <int N, DType F, DType F2, int kStages>
void launch_staged(const LaunchContext& c, const TileProduct& p, const TileShares& shares) {
  static_assert(tile_unit(F) == tile_unit(F2));
  TileParams a;
  a.p = p;
  a.units = shares.units;
  a.splits = shares.splits;
  a.token_tiles = shares.token_tiles;
  while (1 << a.split_shift < a.splits) ++a.split_shift;
  for (int i = 0; i < kMaxSegments; ++i) a.first_tile[i + 1] = shares.first_tile[i + 1];
  constexpr int kWeightBytes = unit_bytes(F) > unit_bytes(F2) ? unit_bytes(F) : unit_bytes(F2);
  constexpr int kSlotBytes = N * tile_unit(F) * 2 + 2 * kWeightBytes;
  constexpr int kResultBytes = N * kResultStride * 4;
  constexpr int kMaxShared = 224 * 1024;
  static_assert(kStages * kSlotBytes + 2 * 1024 <= kMaxShared);
  a.slot_bytes = kSlotBytes;
  a.fours = true;
  for (int i = 0; i < p.segments; ++i) {
    a.fours = a.fours && p.segment[i].rows % 4 == 0 && p.segment[i].out_stride % 4 == 0;
  }
  const int count = divide_up(a.units, a.splits);
  const int ring = (count < kStages ? count : kStages) * a.slot_bytes;
  constexpr int kAlignment = 1024;
  // What is received: after the results in the first slot, which plain weights no longer need then.
  a.received = ring > kResultBytes && !is_plain(F) ? ring : kResultBytes;
  const int received = N <= kFewTileTokens ? a.received + kResultBytes - kResultBytes / a.splits : kResultBytes;
  static_assert(!is_plain(F) || N > kFewTileTokens || 2 * kResultBytes <= kSlotBytes);
  int shared = (ring > received ? ring : received) + kSquaresBytes + kAlignment;
  // Slots as in launch.cuh: no multiprocessor gets more blocks than its share.
  const int blocks = a.first_tile[kMaxSegments] * a.token_tiles * a.splits;
  if (N <= kFewTileTokens && blocks <= 2 * c.sm_count) {
    const int slot = p.residual != nullptr && blocks <= c.sm_count ? kResidualSlot : kTileSlot;
    if (shared < slot) shared = slot;
  } else if (blocks <= c.sm_count && a.splits <= kMaxLoneSplits && shared < kResidualSlot) {
    shared = kResidualSlot;  // one block per multiprocessor
  }
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kTileThreads), shared, a.splits};
  if constexpr (N <= kFewTileTokens) {  // two kernels, since code that is not executed makes the other slower
    if (p.norm != nullptr) return launch(c, shape, tile_product_kernel<N, F, F2, kStages, true>, a);
  }
  launch(c, shape, tile_product_kernel<N, F, F2, kStages, false>, a);
}

template <int N, DType F, DType F2>
void launch_tiles(const LaunchContext& c, const TileProduct& p) {
  constexpr int kFew = tile_stages(F, N, 1);
  constexpr int kMany = tile_stages(F, N, kMaxSplits);
  const TileShares shares = tile_shares(c, p);
  if constexpr (kFew != kMany) {
    if (divide_up(shares.units, shares.splits) > kFew && shares.splits <= kMaxLoneSplits) {
      return launch_staged<N, F, F2, kMany>(c, p, shares);
    }
  }
  launch_staged<N, F, F2, kFew>(c, p, shares);
}

template <int N>
void launch_tiles_for(const LaunchContext& c, const TileProduct& p) {
  if constexpr (N <= kFewTileTokens) {
    if (launch_narrow<N>(c, p)) return;
  }
  (void)with_tile_types(p, [&]<DType F, DType F2>() {
    if constexpr (N <= most_columns(F)) launch_tiles<N, F, F2>(c, p);
  });
}

}  // namespace inferno::cuda
