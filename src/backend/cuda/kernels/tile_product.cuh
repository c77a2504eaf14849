// The product of some tens of tokens (compute capability 9.0): each weight is read once, as it is stored, and
// multiplied as bf16 on tensor cores.
//
// A tile is 128 rows of a weight, or 64 rows of gate and up each, times all tokens, padded to N: two warpgroups have 64
// rows each, as the rows of wgmma, and the tokens are its columns. The k values of a tile are cut into units, and
// these shared among the blocks of a cluster, so that few rows still use many multiprocessors. Each block copies its
// first weights into shared memory and unpacks them into registers, as the operands of wgmma, before it waits for the
// previous kernel; then only the activations have to arrive. At the end the blocks of a cluster add up their results,
// always in the same order (tile_finish.cuh). A norm's factor multiplies the sums: its squares are added up the same
// way.
#pragma once

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tile_activations.cuh"
#include "backend/cuda/kernels/tile_finish.cuh"
#include "backend/cuda/kernels/tile_rows.cuh"
#include "backend/cuda/kernels/wgmma_columns.cuh"

namespace inferno::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// A unit of plain weights.
template <int N, int kSteps>
__device__ __forceinline__ void multiply_unit(float (&acc)[N / 2], uint64_t weights, uint64_t tokens) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    multiply_columns(acc, weights + operand_step(step, kGroupRows), tokens + operand_step(step, N));
  }
}

// Units [i, count) as they arrive; each is a group of copies.
struct ArrivedUnit {
  uint64_t weights, tokens;
};
template <int i, int N, int kSteps, int kStages, typename UnitOf>
__device__ __forceinline__ void multiply_arriving(float (&acc)[N / 2], int count, UnitOf unit_of) {
  if constexpr (i < kStages) {
    if (i >= count) return;
    wait_copies<kStages - 1 - i>();
    fence_async_shared();
    __syncthreads();
    wgmma_fence();
    const ArrivedUnit unit = unit_of(i);
    multiply_unit<N, kSteps>(acc, unit.weights, unit.tokens);
    wgmma_commit();
    multiply_arriving<i + 1, N, kSteps, kStages>(acc, count, unit_of);
  }
}

// The block's part of the products of its rows: of 16-bit weights, or of few tokens. kNorm: it normalizes the tokens.
template <int N, DType F, int kStages, bool kNorm>
__device__ __forceinline__ void multiply_tile(const TileParams& a, const TileProduct::Segment& s, int first_row,
                                              int first_token, int rank, const TileShared& shared,
                                              TokenSquares<N>& squares, float (&acc)[N / 2]) {
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
  TileActivations<N, kValues> activations(a.p, first_token);
  constexpr bool kEarlyNorm = is_plain(F);  // else operands have the registers
  float norm[kStages][8];
  if constexpr (kNorm && kEarlyNorm) {
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      if (i < count) activations.load_norm(unit_of(i), norm[i]);
    }
  }
  let_next_start();
  uint32_t operands[is_plain(F) ? 1 : kSteps][4];
  // Waits for the kernel before, enqueues copies of the tokens of all stages, a group for each, and clears the results.
  const auto bring_tokens = [&] {
    if constexpr (N <= kFewTileTokens) wait_cluster();  // the other blocks' barriers are ready
    wait_for_previous();
    if constexpr (kNorm) {  // there are no more units than stages
      // Blocks of quantized weights mostly have one unit, and no registers for the values of more.
      if constexpr (is_plain(F) && N <= 16) activations.convert_all(count, unit_of, slot_of, norm);
#pragma unroll
      for (int i = 0; i < kStages; ++i) {
        if constexpr (!is_plain(F) || N > 16) {
          if (!kEarlyNorm && i < count) activations.load_norm(unit_of(i), norm[i]);
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
      if (N > kFewTileTokens && a.p.squares != nullptr) squares.load(a.p, first_token);
    }
#pragma unroll
    for (float& v : acc) v = 0;
  };
  if constexpr (is_plain(F)) {
    bring_tokens();
    if (count <= kStages) {  // all is in shared memory
      if constexpr (N <= kFewTileTokens) {
        wait_copies<0>();
        fence_async_shared();
        __syncthreads();
        wgmma_fence();
        const auto multiply = [&](int i) {
          multiply_unit<N, kSteps>(acc, operand(weights_in(slot_of(i))), operand(slot_of(i)));
        };
        multiply(0);
        wgmma_commit();
#pragma unroll 1
        for (int i = 1; i < count; ++i) multiply(i);
        wgmma_commit();
        wgmma_wait<1>();
        arrive_cluster_relaxed();  // others may send to the first slot
      } else {                     // or arrives while what is there is multiplied
        multiply_arriving<0, N, kSteps, kStages>(
            acc, count, [&](int i) { return ArrivedUnit{operand(weights_in(slot_of(i))), operand(slot_of(i))}; });
      }
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
      wait_copies<kStages - 1>();
      sync_barrier(1 + group, kGroupThreads);
      rows.template unpack<kSteps / 2>(weights_in(slot), 0, operands);
      if (i == 0) bring_tokens();
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
  }
  if constexpr (is_plain(F) && N <= kFewTileTokens) arrive_cluster_relaxed();  // as above
}

// The same of quantized weights and many tokens, which leave registers for half a unit at a time. The code that unpacks
// is long and exists once: from the second time on it is in the instruction cache.
template <int N, DType F, int kStages>
__device__ __forceinline__ void multiply_many(const TileParams& a, const TileProduct::Segment& s, int first_row,
                                              int first_token, int rank, const TileShared& shared,
                                              TokenSquares<N>& squares, float (&acc)[N / 2]) {
  constexpr int kValues = tile_unit(F);
  constexpr int kSteps = kValues / 32;  // of half a unit
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
  TileActivations<N, kValues> activations(a.p, first_token);
  let_next_start();
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 0;
#pragma unroll 1
  for (int pass = 0; pass < 2 * count; ++pass) {
    const int i = pass / 2;
    const int half = pass % 2;
    const uint32_t slot = slot_of(i);
    if (half == 0) {
      wait_copies<kStages - 1>();  // each stage is one group from the first activations on, an empty one too
      sync_barrier(1 + group, kGroupThreads);
    }
    uint32_t operands[kSteps][4];
    rows.template unpack<kSteps / 2>(weights_in(slot), half, operands);
    if (pass == 0) {
      wait_for_previous();
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        if (stage < count) activations.copy(unit_of(stage), slot_of(stage));
        commit_copies();
      }
      if (a.p.squares != nullptr) squares.load(a.p, first_token);
    }
    if (half == 0) {
      wait_copies<kStages - 1>();
      fence_async_shared();
      __syncthreads();
    } else if (i + 1 < count) {
      rows.load_super(unit_of(i + 1));
    }
    wgmma_fence();
    const uint64_t tokens = operand(slot) + half * operand_step(kSteps, N);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      multiply_columns(acc, operands[step], tokens + operand_step(step, N));
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin(acc);
    if (half == 0) continue;
    __syncthreads();  // both warpgroups have read the slot
    if (i + kStages < count) {
      rows.copy(unit_of(i + kStages), weights_in(slot));
      activations.copy(unit_of(i + kStages), slot);
    }
    commit_copies();
  }
}

// Adds up the results of the cluster and stores this block's share of them.
template <int N, DType F, bool kNorm>
__device__ __forceinline__ void finish_tile(const TileParams& a, const TileProduct::Segment& s, int first_row,
                                            int first_token, int rank, const TileShared& shared,
                                            TokenSquares<N>& squares, const float (&acc)[N / 2]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  using Share = TileShare<N, kNorm>;
  if (!Share::kSent && a.p.squares != nullptr) squares.finish(a.p, shared.squares);
  Share share(a, s, first_row, first_token, rank, shared);
  // The ring's memory has no other use any more: results[token][row].
  const int my_row = thread / kWarp * 16 + lane / 4;
  const auto put = [&](int token, int row, float v) {
    const uint32_t at = shared.ring + static_cast<uint32_t>(token * kResultStride + row) * 4U;
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
  };
#pragma unroll
  for (int j = 0; j < N / 2; ++j) put(j / 4 * 8 + lane % 4 * 2 + j % 2, my_row + j / 2 % 2 * 8, acc[j]);
  const TileExchange<N> exchange(a, rank, shared);
  if constexpr (Share::kSent) {
    if (kNorm && thread < N) {
      put(thread, kTileRows, __uint_as_float(load_shared_4(shared.squares + static_cast<uint32_t>(thread) * 4U)));
    }
    if constexpr (is_plain(F)) wait_cluster();  // all blocks have multiplied their first units
    exchange.send();
  } else {
    arrive_cluster();
  }
  typename Share::Four four = share.begin();  // not before: a barrier's release would wait for its loads
  if constexpr (Share::kSent) {
    exchange.wait();
    arrive_cluster_relaxed();  // all that was sent to this block is there
  } else {
    wait_cluster();
  }
  // Not unrolled, so that most of it is in the instruction cache from the second four on. What is added to the next one
  // is loaded before this one is stored.
#pragma unroll 1
  for (int pass = 0; pass < share.passes;) {
    float4 v;
    float4 up;
    const float factor = share.factor(four);
    if (four.exists) share.add_up(four, factor, v, up);
    const typename Share::Four now = four;
    if (++pass < share.passes) four = share.begin();
    share.store(now, v, up);
  }
  if constexpr (!Share::kSent) arrive_cluster_relaxed();  // what was read has been stored
  wait_cluster();                                         // until here a block's shared memory is read
}

#endif

// Segments are of type F or F2.
template <int N, DType F, DType F2, int kStages, bool kNorm>
__global__ void __launch_bounds__(kTileThreads, N <= kFewTileTokens || (N == kPairColumns && kStages == 2) ? 2 : 1)
    tile_product_kernel(const __grid_constant__ TileParams a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t unaligned[];
  constexpr uint32_t kAlignment = 1024;
  const TileShared shared((shared_address(unaligned) + kAlignment - 1) / kAlignment * kAlignment);
  const int rank = static_cast<int>(blockIdx.x) & (a.splits - 1);
  const int block = static_cast<int>(blockIdx.x) >> a.split_shift;
  const int tile = block / a.token_tiles;
  const int first_token = (block - tile * a.token_tiles) * N;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  int segment = 0;
  while (!a.p.swiglu && segment + 1 < a.p.segments && tile >= a.first_tile[segment + 1]) ++segment;
  const int first_row = (tile - a.first_tile[segment]) * (a.p.swiglu ? kGroupRows : kTileRows);
  // The warpgroup's rows; of gate and up, those of its own weight.
  const TileProduct::Segment& mine = a.p.segment[a.p.swiglu ? group : segment];
  const int my_row = first_row + (a.p.swiglu ? 0 : group * kGroupRows);
  if constexpr (N <= kFewTileTokens) {
    TileExchange<N>(a, rank, shared).open();
  } else {
    request_next_norm(a.p, first_row);
  }
  TokenSquares<N> squares;
  float acc[N / 2];
  const auto multiply = [&]<DType kType>() {
    if constexpr (is_plain(kType) || N <= kFewTileTokens) {
      multiply_tile<N, kType, kStages, kNorm>(a, mine, my_row, first_token, rank, shared, squares, acc);
    } else {
      multiply_many<N, kType, kStages>(a, mine, my_row, first_token, rank, shared, squares, acc);
    }
  };
  if (F != F2 && mine.dtype == F2) {
    multiply.template operator()<F2>();
  } else {
    multiply.template operator()<F>();
  }
  finish_tile<N, F, kNorm>(a, a.p.segment[segment], first_row, first_token, rank, shared, squares, acc);
#endif
}

}  // namespace inferno::cuda
