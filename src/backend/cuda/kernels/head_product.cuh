// The product of some tens of tokens with a weight of very many rows, the vocabulary (compute capability 9.0).
//
// One block per multiprocessor has the activations of all its tokens in shared memory, once; its warpgroups loop over
// pieces of 64 rows, each on its own, with their weights always a unit or two ahead: unlike tile_product_kernel's many
// blocks, which each start empty. A warpgroup unpacks one half of a unit while the other is multiplied. With more
// tokens than fit, every second block has the second half of them, and the weights are read from L2 once more.
#pragma once

#include "backend/cuda/kernels/head_launch.h"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tile_activations.cuh"
#include "backend/cuda/kernels/tile_rows.cuh"
#include "backend/cuda/kernels/wgmma_columns.cuh"

namespace inferno::cuda {

// Tokens of a block; more of them leave less memory for weights, and need more registers.
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int head_groups(int n) {
  return n <= kFewTileTokens ? 4 : 2;
}
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int head_stages(DType dtype, int n) {
  return is_plain(dtype) && n != kFewTileTokens ? 3 : 2;
}

// Calls visit.template operator()<F>() with the type of the product's weight.
template <typename Visit>
[[nodiscard]] bool with_head_type(const TileProduct& p, Visit&& visit) {
  const auto with = [&]<DType F>() {
    if (p.segment[0].dtype != F) return false;
    visit.template operator()<F>();
    return true;
  };
  return with.template operator()<DType::bf16>() || with.template operator()<DType::q8_0>() ||
         with.template operator()<DType::q4_0>() || with.template operator()<DType::q4_k>() ||
         with.template operator()<DType::q5_k>() || with.template operator()<DType::q6_k>();
}

struct HeadParams {
  TileProduct p;
  int units = 0;        // of a row
  int pieces = 0;       // of 64 rows
  int token_tiles = 1;  // of N tokens
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Stores a piece's results: a lane has two rows of every eighth token and the next.
template <int N>
__device__ __forceinline__ void store_piece(const TileProduct& p, int first_row, int first_token,
                                            const float (&acc)[N / 2]) {
  const TileProduct::Segment& s = p.segment[0];
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int lane = thread % kWarp;
  const int row = first_row + thread / kWarp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < N / 2; ++j) {
    const int token = first_token + j / 4 * 8 + lane % 4 * 2 + j % 2;
    const int r = row + j / 2 % 2 * 8;
    if (token < p.tokens && r < s.rows) static_cast<float*>(s.out)[token * s.out_stride + r] = acc[j];
  }
}

// A warpgroup's sequence of units: all of a piece, then those of its next one.
struct HeadUnits {
  int piece, unit, left;

  __device__ __forceinline__ void advance(int units, int step) {
    --left;
    if (++unit == units) unit = 0, piece += step;
  }
};

template <int N, DType F>
__device__ __forceinline__ void multiply_head(const HeadParams& a, uint32_t base) {
  constexpr int kGroups = head_groups(N);
  constexpr int kStages = head_stages(F, N);
  constexpr int kValues = tile_unit(F);
  constexpr int kSteps = kValues / 16;
  constexpr int kActivationBytes = N * kValues * 2;
  const TileProduct& p = a.p;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int blocks = static_cast<int>(gridDim.x) / a.token_tiles;
  const int first_token = static_cast<int>(blockIdx.x) % a.token_tiles * N;
  const int first = static_cast<int>(blockIdx.x) / a.token_tiles + group * blocks;
  const int step = kGroups * blocks;
  const uint32_t ring = base + static_cast<uint32_t>(a.units * kActivationBytes + group * kStages * unit_bytes(F));
  const auto slot_of = [&](int n) { return ring + static_cast<uint32_t>(n % kStages * unit_bytes(F)); };

  HeadUnits ahead{first, 0, first < a.pieces ? (a.pieces - first + step - 1) / step * a.units : 0};
  HeadUnits at = ahead;
  const auto copy_next = [&](uint32_t to) {
    if (ahead.left > 0) {
      TileRows<F>(p.segment[0], ahead.piece * kGroupRows).copy(ahead.unit, to);
      ahead.advance(a.units, step);
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) copy_next(slot_of(i));
  TileRows<F> rows(p.segment[0], first * kGroupRows);
  rows.load_super(0);
  let_next_start();
  wait_for_previous();
  const TileActivations<N, kValues, kGroups * kGroupThreads> activations(p, first_token);
#pragma unroll 1
  for (int unit = 0; unit < a.units; ++unit) {
    activations.copy(unit, base + static_cast<uint32_t>(unit * kActivationBytes));
  }
  commit_copies();
  wait_copies<0>();
  fence_async_shared();
  __syncthreads();

  float acc[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 0;
#pragma unroll 1
  for (int n = 0; at.left > 0; ++n) {
    wait_copies<kStages - 2>();
    if constexpr (is_plain(F)) fence_async_shared();
    sync_barrier(1 + group, kGroupThreads);  // the unit has arrived, and the one before it has been read
    copy_next(slot_of(n + kStages - 1));
    const uint32_t slot = slot_of(n);
    const uint64_t tokens = operand(base + static_cast<uint32_t>(at.unit * kActivationBytes));
    if constexpr (is_plain(F)) {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        multiply_columns(acc, operand(slot) + operand_step(i, kGroupRows), tokens + operand_step(i, N));
      }
      wgmma_commit();
      wgmma_wait<0>();
    } else {
      uint32_t low[kSteps / 2][4];
      rows.template unpack<kSteps / 4>(slot, 0, low);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kSteps / 2; ++i) multiply_columns(acc, low[i], tokens + operand_step(i, N));
      wgmma_commit();
      uint32_t high[kSteps / 2][4];
      rows.template unpack<kSteps / 4>(slot, 1, high);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kSteps / 2; ++i) {
        multiply_columns(acc, high[i], tokens + operand_step(kSteps / 2 + i, N));
      }
      wgmma_commit();
    }
    const int piece = at.piece;
    const bool last = at.unit + 1 == a.units;
    at.advance(a.units, step);
    if constexpr (!is_plain(F)) {
      if (at.left > 0) {
        if (last) rows.move_to(at.piece * kGroupRows);
        rows.load_super(at.unit);
      }
      wgmma_wait<0>();
    }
    pin(acc);
    if (last) {
      store_piece<N>(p, piece * kGroupRows, first_token, acc);
#pragma unroll
      for (int i = 0; i < N / 2; ++i) acc[i] = 0;
    }
  }
}

#endif

template <int N, DType F>
__global__ void __launch_bounds__(head_groups(N) * kGroupThreads, 1)
    head_product_kernel(const __grid_constant__ HeadParams a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t unaligned[];
  constexpr uint32_t kAlignment = 1024;
  multiply_head<N, F>(a, (shared_address(unaligned) + kAlignment - 1) / kAlignment * kAlignment);
#endif
}

template <int N, DType F>
[[nodiscard]] int head_bytes(int k) {
  constexpr int kAlignment = 1024;
  return N * k * 2 + head_groups(N) * head_stages(F, N) * unit_bytes(F) + kAlignment;
}

template <int N>
void launch_head_for(const LaunchContext& c, const TileProduct& p) {
  (void)with_head_type(p, [&]<DType F>() {
    HeadParams a;
    a.p = p;
    a.units = p.k / tile_unit(F);
    a.pieces = divide_up(p.segment[0].rows, kGroupRows);
    a.token_tiles = divide_up(p.tokens, N);
    const int blocks = c.sm_count / a.token_tiles * a.token_tiles;
    launch(c, {dim3(static_cast<unsigned>(blocks)), dim3(head_groups(N) * kGroupThreads), head_bytes<N, F>(p.k)},
           head_product_kernel<N, F>, a);
  });
}

}  // namespace inferno::cuda
