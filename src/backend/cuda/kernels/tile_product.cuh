// The product of some tens of tokens (compute capability 9.0): each weight is read once, as it is stored, and
// multiplied as bf16 on tensor cores.
//
// A tile is 128 rows of a weight, or 64 rows of gate and up each, times all tokens, padded to N: two warpgroups have 64
// rows each, as the rows of wgmma, and the tokens are its columns. The k values of a tile are cut into units, and
// these shared among the blocks of a cluster, so that few rows still use many multiprocessors. Each block copies its
// first weights into shared memory and unpacks them into registers, as the operands of wgmma, before it waits for the
// previous kernel; then only the activations have to arrive. At the end the blocks of a cluster add up their results in
// each other's shared memory, always in the same order. A norm's factor multiplies the sums: its squares are added up
// the same way.
#pragma once

#include "backend/cuda/kernels/cluster.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tile_activations.cuh"
#include "backend/cuda/kernels/tile_rows.cuh"
#include "backend/cuda/kernels/wgmma_columns.cuh"

namespace inferno::cuda {

// Floats between the tokens of a tile's results in shared memory: a warp's stores are in different banks.
inline constexpr int kResultStride = kTileRows + 4;
inline constexpr int kQuadShift = 4;  // 2 to the power of this: fours of a warpgroup's rows
static_assert(4 << kQuadShift == kGroupRows);
inline constexpr int kSquaresBytes = 1024;  // of all tokens; the ring after them is aligned

struct TileParams {
  TileProduct p;
  int units = 0;                          // of a row
  int splits = 1;                         // blocks that share a tile
  int split_shift = 0;                    // the power of two that they are
  int slot_bytes = 0;                     // of a unit: activations, then weights of both warpgroups
  bool fours = false;                     // results are stored four at a time
  int first_tile[kMaxSegments + 1] = {};  // of each segment
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Shared memory of a block: squares, then the ring of units.
struct TileShared {
  uint32_t squares, ring;

  __device__ __forceinline__ explicit TileShared(uint32_t base) : squares(base), ring(base + kSquaresBytes) {}
};

// A unit of plain weights.
template <int N, int kSteps>
__device__ __forceinline__ void multiply_unit(float (&acc)[N / 2], uint64_t weights, uint64_t tokens) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    multiply_columns(acc, weights + operand_step(step, kGroupRows), tokens + operand_step(step, N));
  }
}

// The block's part of the products of its rows.
template <int N, DType F>
__device__ __forceinline__ void multiply_tile(const TileParams& a, const TileProduct::Segment& s, int first_row,
                                              int rank, const TileShared& shared, float (&acc)[N / 2]) {
  constexpr int kStages = tile_stages(F);
  constexpr int kValues = tile_unit(F);
  constexpr int kSteps = kValues / 16;
  constexpr int kActivationBytes = N * kValues * 2;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int count = (a.units - rank + a.splits - 1) / a.splits;  // units of this block
  const auto unit_of = [&](int i) { return rank + i * a.splits; };
  const auto slot_of = [&](int i) { return shared.ring + static_cast<uint32_t>(i % kStages * a.slot_bytes); };
  const auto weights_in = [&](uint32_t slot) {
    return slot + static_cast<uint32_t>(kActivationBytes + group * unit_bytes(F));
  };
  TileRows<F> rows(s, first_row);
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    if (i < count) rows.copy(unit_of(i), weights_in(slot_of(i)));
    commit_copies();
  }
  rows.load_super(unit_of(0));
  TileActivations<N, kValues> activations(a.p, 0);
  float norm[kStages][8];
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    if (a.p.norm != nullptr && i < count) activations.load_norm(unit_of(i), norm[i]);
  }
  let_next_start();
  uint32_t operands[is_plain(F) ? 1 : kSteps][4];
  if constexpr (!is_plain(F)) {
    wait_copies<kStages - 1>();
    sync_barrier(1 + group, kGroupThreads);
    rows.unpack(weights_in(slot_of(0)), operands);
  }
  wait_for_previous();
  if (a.p.norm != nullptr) {  // there are no more units than stages
    // Blocks of quantized weights mostly have one unit, and no registers for the values of more.
    if constexpr (is_plain(F) && N <= 16) activations.convert_all(count, unit_of, slot_of, norm);
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      if constexpr (!is_plain(F) || N > 16) {
        if (i < count) activations.convert(unit_of(i), slot_of(i), norm[i]);
      }
      commit_copies();
    }
    activations.store_squares(shared.squares);
  } else {
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      if (i < count) activations.copy(unit_of(i), slot_of(i));
      commit_copies();
    }
  }
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 0;
  if constexpr (is_plain(F)) {
    if (count <= kStages) {  // all is in shared memory
      wait_copies<0>();
      fence_async_shared();
      __syncthreads();
      wgmma_fence();
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        multiply_unit<N, kSteps>(acc, operand(weights_in(slot_of(i))), operand(slot_of(i)));
      }
      wgmma_commit();
      wgmma_wait<0>();
      pin(acc);
      __syncthreads();  // both warpgroups have read the activations
      return;
    }
  }
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const uint32_t slot = slot_of(i);
    if constexpr (!is_plain(F)) {
      if (i + 1 < count) rows.load_super(unit_of(i + 1));
    }
    wait_copies<kStages - 1>();  // each stage is one group from here on, an empty one too
    fence_async_shared();
    __syncthreads();
    wgmma_fence();
    const uint64_t tokens = operand(slot);
    if constexpr (is_plain(F)) {
      multiply_unit<N, kSteps>(acc, operand(weights_in(slot)), tokens);
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        multiply_columns(acc, operands[step], tokens + operand_step(step, N));
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin(acc);
    __syncthreads();  // both warpgroups have read the slot
    if (i + kStages < count) {
      rows.copy(unit_of(i + kStages), weights_in(slot));
      activations.copy(unit_of(i + kStages), slot);
    }
    commit_copies();
    if constexpr (!is_plain(F)) {
      if (i + 1 < count) {
        // Also waits for activations of the first stages, which are groups of their own.
        wait_copies<kStages - 1>();
        sync_barrier(1 + group, kGroupThreads);
        rows.unpack(weights_in(slot_of(i + 1)), operands);
      }
    }
  }
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 scaled(float4 v, float factor) {
  return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

// Four results of a tile, summed over the cluster; `at`: their address in each block's shared memory.
__device__ __forceinline__ float4 cluster_sum(uint32_t at, int splits) {
  float4 parts[kMaxSplits];
#pragma unroll
  for (int r = 0; r < kMaxSplits; ++r) {
    parts[r] = make_float4(0, 0, 0, 0);
    if (r < splits) parts[r] = load_from(address_in(at, r));
  }
  float4 sum = parts[0];
#pragma unroll
  for (int r = 1; r < kMaxSplits; ++r) sum = add(sum, parts[r]);
  return sum;
}

// Stores results of rows [row, row + 4) of a token, less where the weight ends. `extra`: bias and
// residual, where four are stored at a time.
__device__ __forceinline__ void store_four(const TileParams& a, const TileProduct::Segment& s, int token, int row,
                                           float4 v, float4 extra) {
  const TileProduct& p = a.p;
  const int64_t at = token * s.out_stride + row;
  if (a.fours) {
    v = add(v, extra);
    if (p.out_type == DType::bf16) {
      *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(s.out) + at) =
          make_uint2(pack_pair<__nv_bfloat16>(v.x, v.y), pack_pair<__nv_bfloat16>(v.z, v.w));
    } else {
      *reinterpret_cast<float4*>(static_cast<float*>(s.out) + at) = v;
    }
    return;
  }
  const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (row + i >= s.rows) break;
    float one = values[i];
    if (s.bias != nullptr) one += s.bias[row + i];
    if (p.residual != nullptr) one += load_fresh(p.residual + at + i);
    if (p.out_type == DType::bf16) {
      static_cast<__nv_bfloat16*>(s.out)[at + i] = narrow<__nv_bfloat16>(one);
    } else {
      static_cast<float*>(s.out)[at + i] = one;
    }
  }
}

// Adds up the results of the cluster and stores this block's share of them: a thread has four rows of a token, or of
// many tokens every kTileThreads-th four.
template <int N>
__device__ __forceinline__ void finish_tile(const TileParams& a, const TileProduct::Segment& s, int first_row, int rank,
                                            const TileShared& shared, const float (&acc)[N / 2]) {
  const TileProduct& p = a.p;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int quad_shift = p.swiglu ? kQuadShift : kQuadShift + 1;  // fours of a token: 2 to the power of this
  const int count = p.tokens << quad_shift;
  const int share = (count + a.splits - 1) >> a.split_shift;
  const int end = min((rank + 1) * share, count);
  const int passes = (share + kTileThreads - 1) / kTileThreads;
  int i = rank * share + thread;
  int token = 0;
  int row = 0;  // of the tile
  bool exists = false;
  float4 extra = make_float4(0, 0, 0, 0);
  // Where the next result is, and what is added to it: loaded before it is waited for.
  const auto begin = [&] {
    token = i >> quad_shift;
    row = (i - (token << quad_shift)) * 4;
    exists = i < end && first_row + row < s.rows;
    if (!exists || !a.fours) return;
    extra = make_float4(0, 0, 0, 0);
    if (s.bias != nullptr) extra = *reinterpret_cast<const float4*>(s.bias + first_row + row);
    if (p.residual != nullptr) {
      extra = add(extra, load_fresh4(p.residual + token * s.out_stride + first_row + row));
    }
  };
  begin();
  // The ring's memory has no other use any more: results[token][row].
  const uint32_t results = shared.ring;
  const int my_row = thread / kWarp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < N / 2; ++j) {
    const int to_token = j / 4 * 8 + lane % 4 * 2 + j % 2;
    const uint32_t at = results + static_cast<uint32_t>(to_token * kResultStride + my_row + j / 2 % 2 * 8) * 4U;
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(acc[j]) : "memory");
  }
  arrive_cluster();
  wait_cluster();
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    if (pass > 0) {
      i += kTileThreads;
      begin();
    }
    float4 v = make_float4(0, 0, 0, 0);
    if (exists) {
      const uint32_t from = results + static_cast<uint32_t>(token * kResultStride + row) * 4U;
      float squares[kMaxSplits] = {};
      if (p.norm != nullptr) {
#pragma unroll
        for (int r = 0; r < kMaxSplits; ++r) {
          if (r < a.splits) squares[r] = load_one_from(address_in(shared.squares + token * 4, r));
        }
      }
      v = cluster_sum(from, a.splits);
      float4 up = v;
      if (p.swiglu) up = cluster_sum(from + kGroupRows * 4, a.splits);
      if (p.norm != nullptr) {
        float sum = 0;
#pragma unroll
        for (int r = 0; r < kMaxSplits; ++r) sum += squares[r];
        const float factor = rsqrtf(__fdividef(sum, static_cast<float>(p.k)) + p.eps);
        v = scaled(v, factor);
        up = scaled(up, factor);
      }
      if (p.swiglu) v = make_float4(swiglu(v.x, up.x), swiglu(v.y, up.y), swiglu(v.z, up.z), swiglu(v.w, up.w));
    }
    if (exists) store_four(a, s, token, first_row + row, v, extra);
  }
  arrive_cluster_relaxed();  // a block's shared memory is read until here: what was read has been stored
  wait_cluster();
}

#endif

// Segments are of type F or F2.
template <int N, DType F, DType F2>
__global__ void __launch_bounds__(kTileThreads, N <= kFewTileTokens ? 2 : 1)
    tile_product_kernel(const __grid_constant__ TileParams a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t unaligned[];
  constexpr uint32_t kAlignment = 1024;
  const TileShared shared((shared_address(unaligned) + kAlignment - 1) / kAlignment * kAlignment);
  const int tile = static_cast<int>(blockIdx.x) / a.splits;
  const int rank = static_cast<int>(blockIdx.x) % a.splits;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  int segment = 0;
  while (!a.p.swiglu && segment + 1 < a.p.segments && tile >= a.first_tile[segment + 1]) ++segment;
  const int first_row = (tile - a.first_tile[segment]) * (a.p.swiglu ? kGroupRows : kTileRows);
  // The warpgroup's rows; of gate and up, those of its own weight.
  const TileProduct::Segment& mine = a.p.segment[a.p.swiglu ? group : segment];
  const int my_row = first_row + (a.p.swiglu ? 0 : group * kGroupRows);
  float acc[N / 2];
  bool done = false;
  if constexpr (F != F2) {
    if (mine.dtype == F2) {
      multiply_tile<N, F2>(a, mine, my_row, rank, shared, acc);
      done = true;
    }
  }
  if (!done) multiply_tile<N, F>(a, mine, my_row, rank, shared, acc);
  finish_tile<N>(a, a.p.segment[segment], first_row, rank, shared, acc);
#endif
}

}  // namespace inferno::cuda
