// Quantized rows of a chunk times the activations of up to eight tokens, as tiles of quant_tile.cuh: 16 rows, or 8
// pairs with the gates in the upper half. A warp has every eighth pair of groups of all rows.
#pragma once

#include "backend/cuda/kernels/quant_tile.cuh"
#include "backend/cuda/kernels/vector_stream.cuh"

namespace inferno::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// A lane's sums of the tile whose first row is `first` of a chunk of `count` rows, which are from `begin` on among
// those that are finished together: sums[warp][row (SwiGLU: gates and ups in turn)][column].
template <int kColumns, DType F, bool kSwiglu>
__device__ __forceinline__ void store_tile_sums(const StreamShare<F, kSwiglu>& w, int warp, int lane, int begin,
                                                int first, int count, const float* acc) {
  float* sums = w.sums + warp * w.a.sum_stride + lane % 4 * 2;
  const auto put = [&](int index, int i) {
    *reinterpret_cast<float2*>(sums + index * kColumns) = make_float2(acc[i], acc[i + 1]);
  };
  const int row = first + lane / 4;
  if (row < count) put((begin + row) * (kSwiglu ? 2 : 1), 0);
  if constexpr (kSwiglu) {
    if (row < count) put((begin + row) * 2 + 1, 2);
  } else {
    if (row + 8 < count) put(begin + row + 8, 2);
  }
}

template <DType F, bool kSwiglu, int kColumns>
struct QuantTiles : QuantTile<F> {
  using Tile = QuantTile<F>;
  using Tile::lane;
  static_assert(kColumns == kTileColumns);
  static constexpr int kParts = kSwiglu ? 2 : 1;
  static constexpr int kTileRows = kSwiglu ? 8 : 16;

  int warp;
  uint32_t operand;   // of the tokens' values: this lane's row for load_matrices
  uint32_t token[2];  // columns 2c and 2c + 1
  int padded_groups;

  __device__ __forceinline__ QuantTiles(const StreamShare<F, kSwiglu>& w, int warp_, int lane_)
      : Tile{lane_}, warp(warp_), padded_groups(w.a.units * 32) {
    const int last = w.a.p.tokens - 1;  // columns without a token repeat the last one: their sums are discarded
    const uint32_t x = shared_address(w.x);
    operand = x + min(lane % 8, last) * w.a.column_bytes + (lane / 8 % 2 * padded_groups + lane / 16) * 16;
    for (int e = 0; e < 2; ++e) token[e] = x + min(lane % 4 * 2 + e, last) * w.a.column_bytes;
  }

  __device__ __forceinline__ void run(const StreamShare<F, kSwiglu>& w, uint32_t slot, int begin, int count) const {
    const int g = lane / 4;
    const int groups = w.bytes.s / Tile::kBytes.s;
    const int rows = w.a.chunk_rows;
    const uint32_t part_space = chunk_space(w.bytes, rows, kRowPad);
    const uint32_t h_plane = slot + round_16((w.bytes.q + kRowPad) * rows);
    const uint32_t s_plane = h_plane + round_16(w.bytes.h * rows);
    const uint32_t d_plane = s_plane + round_16(w.bytes.s * rows);
#pragma unroll 1
    for (int first = 0; first < count; first += kTileRows) {
      // Row i of the tile; rows after the last repeat it.
      const auto row_of = [&](int i) { return kSwiglu ? min(first + i % 8, count - 1) : min(first + i, count - 1); };
      const auto skip_of = [&](int i) { return kSwiglu && i >= 8 ? part_space : 0U; };
      typename Tile::Rows at;
      at.q = slot + skip_of(lane % 16) + row_of(lane % 16) * (w.bytes.q + kRowPad);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = row_of(g + 8 * i);
        const uint32_t skip = skip_of(8 * i);
        at.h[i] = h_plane + skip + r * w.bytes.h;
        at.s[i] = s_plane + skip + r * w.bytes.s;
        at.d[i] = d_plane + skip + r * w.bytes.d;
      }
      float acc[4] = {};
#pragma unroll 1
      for (int j = 2 * warp; j < groups; j += 2 * kStreamWarps) {
        typename Tile::Group group[2];
        this->load(at, groups, j, group);
        TileTokens x;
        x.template load<Tile::kSums>(operand, token, padded_groups, j);
        this->add(group, x, acc);
      }
      store_tile_sums<kColumns>(w, warp, lane, begin, first, count, acc);
    }
  }
};

#endif

}  // namespace inferno::cuda
