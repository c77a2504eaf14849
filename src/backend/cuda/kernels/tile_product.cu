// Dispatch of the products of some tens of tokens by their number.
#include "backend/cuda/kernels/head_launch.h"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {

// Each in the file that instantiates it.
void launch_tiles_8(const LaunchContext& c, const TileProduct& p);
void launch_tiles_16(const LaunchContext& c, const TileProduct& p);
void launch_tiles_32(const LaunchContext& c, const TileProduct& p);
void launch_tiles_64(const LaunchContext& c, const TileProduct& p);
void launch_tiles_128(const LaunchContext& c, const TileProduct& p);

bool tile_product_fits(const LaunchContext& c, const TileProduct& p) {
  constexpr int kValues = 256;  // rows are cut into pieces of so many values
  if (!c.hopper || p.tokens > kMaxTileTokens || p.k % kValues != 0 || p.k == 0) return false;
  if (is_plain(p.segment[0].dtype) && p.tokens > kMaxPlainTileTokens) return false;
  if (p.swiglu && p.segment[0].dtype != p.segment[1].dtype) return false;
  return with_tile_types(p, [&]<DType F, DType F2>() {});
}

TileShares tile_shares(const LaunchContext& c, const TileProduct& p) {
  const bool plain = is_plain(p.segment[0].dtype);
  TileShares s;
  s.units = p.k / tile_unit(p.segment[0].dtype);
  const auto cut = [&](int rows_of_tile) {
    for (int i = 0; i < kMaxSegments; ++i) {
      const bool counts = i < p.segments && (i == 0 || !p.swiglu);
      s.first_tile[i + 1] = s.first_tile[i] + (counts ? divide_up(p.segment[i].rows, rows_of_tile) : 0);
    }
    return s.first_tile[kMaxSegments];
  };
  const int tiles = cut(p.swiglu ? kGroupRows : kTileRows);
  const int most = plain ? s.units / 2 : s.units;
  while (s.columns < most_columns(p.segment[0].dtype) && s.columns < p.tokens) s.columns *= 2;
  s.token_tiles = divide_up(p.tokens, s.columns);
  // Blocks of few tokens are two per multiprocessor, and so are, of many, those of few units; of others large clusters
  // do not fill all multiprocessors.
  const auto most_blocks = [&](int splits) {
    if (p.tokens <= kFewTileTokens) return 2 * c.sm_count;
    const bool fits = s.columns <= kPairColumns && (plain || splits <= kMaxLoneSplits || splits >= s.units);
    return fits ? c.sm_count : c.sm_count * 7 / 8;
  };
  while (s.splits < kMaxSplits && 2 * s.splits <= most &&
         tiles * s.token_tiles * s.splits * 2 <= most_blocks(2 * s.splits)) {
    s.splits *= 2;
  }
  return s;
}

bool tile_product_normalizes(const LaunchContext& c, const TileProduct& p) {
  if (is_head_product(c, p)) return false;
  if (p.tokens > kFewTileTokens) return false;  // blocks that share a row would convert too much of it each
  const TileShares s = tile_shares(c, p);
  return s.units <= s.splits * tile_stages(p.segment[0].dtype, s.columns, 1);
}

bool is_head_product(const LaunchContext& c, const TileProduct& p) {
  if (!tile_product_fits(c, p) || p.segments != 1 || p.residual != nullptr || p.out_type != DType::f32) return false;
  return p.segment[0].bias == nullptr && p.segment[0].rows >= kHeadPieces * c.sm_count * kGroupRows &&
         head_shared_bytes(p) <= kMaxHeadShared;
}

void launch_tile_product(const LaunchContext& c, const TileProduct& p) {
  if (is_head_product(c, p)) return launch_head_product(c, p);
  switch (tile_shares(c, p).columns) {
    case 8:
      return launch_tiles_8(c, p);
    case 16:
      return launch_tiles_16(c, p);
    case 32:
      return launch_tiles_32(c, p);
    case 64:
      return launch_tiles_64(c, p);
    default:
      return launch_tiles_128(c, p);
  }
}

}  // namespace inferno::cuda
