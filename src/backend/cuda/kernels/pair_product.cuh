// Products of rows with one of several matrices each: experts, and the matrices of heads. Included by one file per
// group of formats.
//
// A block has a tile, up to kColumns pairs of one matrix, and some of its rows. It loads the pairs' activations into
// shared memory, quantized where the weights are, and each warp multiplies kPairRows rows at a time with all of them.
// What a pair's result is does not depend on the others of its tile.
#pragma once

#include "backend/cuda/kernels/activations.cuh"
#include "backend/cuda/kernels/family_kernels.h"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {

inline constexpr int kPairWarps = 8;
inline constexpr int kPairThreads = kPairWarps * kWarp;
inline constexpr int kPairRows = 2;

struct PairParams {
  PairProduct p;
  int units = 0;           // of a row of x
  int rows_per_block = 0;  // a multiple of kPairWarps * kPairRows
};

// The pairs of block `tile`, which has one: pair_of(m) for m below count.
struct TilePairs {
  const int32_t* list = nullptr;  // or null: first + m * step
  int64_t first = 0;
  int64_t step = 0;
  int count = 0;
  int matrix = 0;
  __device__ __forceinline__ int64_t pair_of(int m) const { return list != nullptr ? list[m] : first + m * step; }
};
template <int kColumns>
__device__ __forceinline__ TilePairs tile_pairs(const PairProduct& p, int64_t tile) {
  TilePairs t;
  if (p.ids == nullptr) {  // consecutive tokens of a slot
    const int64_t token = tile / p.slots * kColumns;
    t.matrix = static_cast<int>(tile % p.slots);
    t.first = token * p.slots + t.matrix;
    t.step = p.slots;
    t.count = static_cast<int>(min(p.tokens - token, int64_t{kColumns}));
  } else if (kColumns == 1) {
    t.first = tile;
    t.count = 1;
    t.matrix = __ldcg(p.ids + tile);
  } else if (tile < __ldcg(p.lists.count)) {
    const PairTile* at = p.lists.tiles + tile;
    t.matrix = __ldcg(&at->matrix);
    t.count = __ldcg(&at->count);
    t.list = p.lists.pairs + __ldcg(&at->first);
  }
  return t;
}

// A row of `k` values into shared memory, by the whole block; the tail of the last unit is zero.
template <DType F>
__device__ __forceinline__ void load_pair_row(const float* from, int k, int units, uint8_t* x) {
  const bool aligned = k % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  // Whole warps stay together: the number of chunks is a multiple of 128.
#pragma unroll 1
  for (int chunk = static_cast<int>(threadIdx.x); chunk < units * (kUnit / 8); chunk += kPairThreads) {
    float v[8];
    load_fresh8(from + chunk * 8, k - chunk * 8, aligned, v);
    put_chunk<activation_of<F>()>(x, units * 32, chunk, v);
  }
}

template <DType F, int kColumns>
__global__ void __launch_bounds__(kPairThreads) pair_product_kernel(const __grid_constant__ PairParams a) {
  extern __shared__ __align__(128) uint8_t shared[];  // activations of kColumns pairs
  let_next_start();
  wait_for_previous();
  const PairProduct& p = a.p;
  const TilePairs tile = tile_pairs<kColumns>(p, blockIdx.x);
  if (tile.count == 0) return;  // of all threads
  const int token_bytes = activation_bytes(activation_of<F>(), a.units);
#pragma unroll 1
  for (int m = 0; m < kColumns; ++m) {
    // Columns without a pair repeat the last one: their sums are discarded.
    const int64_t pair = tile.pair_of(min(m, tile.count - 1));
    load_pair_row<F>(p.x + pair / p.slots * p.x_token + pair % p.slots * p.x_slot, p.k, a.units,
                     shared + m * token_bytes);
  }
  __syncthreads();

  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const RowBytes bytes = row_bytes_of<F>(p.w);
  const int begin = static_cast<int>(blockIdx.y) * a.rows_per_block;
  const int end = min(begin + a.rows_per_block, p.rows);
  const int64_t first_row = int64_t{tile.matrix} * p.rows;
#pragma unroll 1
  for (int row = begin + warp * kPairRows; row < end; row += kPairWarps * kPairRows) {
    float acc[kPairRows][kColumns] = {};
#pragma unroll 1
    for (int unit = 0; unit < a.units; ++unit) {
      Part<F> part[kPairRows];
#pragma unroll
      for (int r = 0; r < kPairRows; ++r) {
        part[r].load(global_row<F>(p.w, first_row + min(row + r, p.rows - 1)), bytes, unit, lane);
      }
#pragma unroll
      for (int m = 0; m < kColumns; ++m) {
        const auto x = Part<F>::activations(shared + m * token_bytes, a.units * 32, unit, lane);
#pragma unroll
        for (int r = 0; r < kPairRows; ++r) acc[r][m] = part[r].multiply(x, acc[r][m]);
      }
    }
#pragma unroll
    for (int r = 0; r < kPairRows; ++r) {
#pragma unroll
      for (int m = 0; m < kColumns; ++m) {
        const float sum = warp_sum(acc[r][m]);
        if (lane != m || m >= tile.count || row + r >= end) continue;
        const int64_t pair = tile.pair_of(m);
        const float bias = p.bias != nullptr ? p.bias[first_row + row + r] : 0.0F;
        p.out[pair / p.slots * p.out_token + pair % p.slots * p.out_slot + row + r] = sum + bias;
      }
    }
  }
}

template <DType F, int kColumns>
void launch_pairs(const LaunchContext& c, const PairProduct& p) {
  PairParams a;
  a.p = p;
  a.units = divide_up(p.k, kUnit);
  const int64_t tiles = p.ids == nullptr ? p.slots * divide_up<int64_t>(p.tokens, kColumns)
                        : kColumns == 1  ? p.tokens * p.slots
                                         : max_tiles(p.tokens * p.slots, p.matrices, kColumns);
  // Blocks convert the activations again: few where there are tiles enough, more where one token has to fill the
  // device.
  constexpr int kSetRows = kPairWarps * kPairRows;
  constexpr int kMostSets = 8;
  const int sets = divide_up(p.rows, kSetRows);
  const int64_t wanted = divide_up<int64_t>(int64_t{4} * c.sm_count, tiles);
  int64_t per_block = divide_up<int64_t>(sets, wanted < sets ? wanted : sets);
  if (per_block > kMostSets) per_block = kMostSets;
  a.rows_per_block = static_cast<int>(per_block) * kSetRows;
  const int bytes = kColumns * activation_bytes(activation_of<F>(), a.units);
  launch(c,
         {dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(divide_up(p.rows, a.rows_per_block))),
          dim3(kPairThreads), bytes},
         pair_product_kernel<F, kColumns>, a);
}

template <DType F>
void launch_pairs_for(const LaunchContext& c, const PairProduct& p) {
  p.columns == 1 ? launch_pairs<F, 1>(c, p) : launch_pairs<F, kPairColumns>(c, p);
}

// One function per type, each in the file that instantiates it.
#define FORMAT(name, Name, ...) void launch_pairs_##name(const LaunchContext& c, const PairProduct& p);
#include "tensor/weight_formats.inc"

}  // namespace inferno::cuda
