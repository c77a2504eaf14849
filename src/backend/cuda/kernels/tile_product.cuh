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
  int token_tiles = 1;                    // blocks of the same rows: each has N tokens
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

// The squares that the product before has added up, of which the threads of a token have some each: they are loaded
// without being waited for, and become the token's factor at the end. Parts 8 apart are added first, then those 4, 2
// and 1 apart, whatever N is.
template <int N>
struct TokenSquares {
  static constexpr int kParts = 16;                                                     // that are loaded at a time
  static constexpr int kShare = kTileThreads / N < kParts ? kTileThreads / N : kParts;  // threads of a token
  static constexpr int kCount = kParts / kShare;
  float v[kCount] = {};

  // After wait_for_previous().
  __device__ __forceinline__ void load(const TileProduct& p, int first_token) {
    const int token = static_cast<int>(threadIdx.x) / kShare;
    if (token >= N || first_token + token >= p.tokens) return;
    const float* from = p.squares + first_token + token;
    const int parts = p.k / kSquaresRows;
    const int part = static_cast<int>(threadIdx.x) % kShare;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (part + i * kShare < parts) v[i] = load_fresh(from + (part + i * kShare) * p.tokens);
    }
#pragma unroll 1
    for (int first = kParts; first < parts; first += kParts) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int at = first + part + i * kShare;
        if (at < parts) v[i] += load_fresh(from + at * p.tokens);
      }
    }
  }
  // Stores the tokens' factors to shared memory.
  __device__ __forceinline__ void store_factor(const TileProduct& p, uint32_t factors) {
#pragma unroll
    for (int step = kCount / 2; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < step; ++i) v[i] += v[i + step];
    }
#pragma unroll
    for (int step = kShare / 2; step > 0; step /= 2) v[0] += __shfl_xor_sync(kFullMask, v[0], step);
    const int token = static_cast<int>(threadIdx.x) / kShare;
    if (threadIdx.x % kShare != 0 || token >= N) return;
    const float factor = rsqrtf(__fdividef(v[0], static_cast<float>(p.k)) + p.eps);
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(factors + static_cast<uint32_t>(token) * 4U), "f"(factor) : "memory");
  }
};

// Requests the norm's weights of the tile's rows, which no kernel before has read.
__device__ __forceinline__ void request_next_norm(const TileProduct& p, int first_row) {
  const int at = static_cast<int>(threadIdx.x) * kWarp;
  if (p.next_norm == nullptr || at >= kTileRows || first_row + at >= p.segment[0].rows) return;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p.next_norm + first_row + at));
}

// The block's part of the products of its rows: of 16-bit weights, or of few tokens.
template <int N, DType F, int kStages>
__device__ __forceinline__ void multiply_tile(const TileParams& a, const TileProduct::Segment& s, int first_row,
                                              int first_token, int rank, const TileShared& shared,
                                              TokenSquares<N>& squares, float (&acc)[N / 2]) {
  constexpr int kValues = tile_unit(F);
  constexpr int kSteps = kValues / 16;
  constexpr int kActivationBytes = N * kValues * 2;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  // Units of this block; one stage is for one.
  const int count = kStages == 1 ? 1 : (a.units - rank + a.splits - 1) / a.splits;
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
  constexpr bool kNormalizes = N <= kFewTileTokens;
  constexpr bool kEarlyNorm = is_plain(F) || (kStages == 1 && N == 8);  // else operands have the registers
  float norm[kStages][8];
  if constexpr (kNormalizes && kEarlyNorm) {
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      if (a.p.norm != nullptr && i < count) activations.load_norm(unit_of(i), norm[i]);
    }
  }
  let_next_start();
  uint32_t operands[is_plain(F) ? 1 : kSteps][4];
  if constexpr (!is_plain(F)) {
    wait_copies<kStages - 1>();
    sync_barrier(1 + group, kGroupThreads);
    rows.template unpack<kSteps / 2>(weights_in(slot_of(0)), 0, operands);
  }
  wait_for_previous();
  if (kNormalizes && a.p.norm != nullptr) {  // there are no more units than stages
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
    if (a.p.squares != nullptr) squares.load(a.p, first_token);
  }
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 0;
  if constexpr (is_plain(F)) {
    if (count <= kStages) {  // all is in shared memory
      if constexpr (N <= kFewTileTokens) {
        wait_copies<0>();
        fence_async_shared();
        __syncthreads();
        wgmma_fence();
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          multiply_unit<N, kSteps>(acc, operand(weights_in(slot_of(i))), operand(slot_of(i)));
        }
        wgmma_commit();
      } else {  // or arrives while what is there is multiplied
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
        rows.template unpack<kSteps / 2>(weights_in(slot_of(i + 1)), 0, operands);
      }
    }
  }
}

// The same of quantized weights where a block has one and a half units, all of whose weights are operands before the
// previous kernel has ended: a unit of its own and half of one that it shares with the next or previous block.
template <int N, DType F>
__device__ __forceinline__ void multiply_unit_and_half(const TileParams& a, const TileProduct::Segment& s,
                                                       int first_row, int first_token, int rank,
                                                       const TileShared& shared, TokenSquares<N>& squares,
                                                       float (&acc)[N / 2]) {
  constexpr int kValues = tile_unit(F);
  constexpr int kSteps = kValues / 16;
  constexpr int kActivationBytes = N * kValues * 2;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int half = rank % 2;
  const int unit[2] = {rank, a.splits + rank / 2};
  const uint32_t slot[2] = {shared.ring, shared.ring + static_cast<uint32_t>(a.slot_bytes)};
  const uint32_t weights = static_cast<uint32_t>(kActivationBytes + group * unit_bytes(F));
  TileRows<F> rows(s, first_row);
  TileRows<F> more(s, first_row);
  rows.copy(unit[0], slot[0] + weights);
  commit_copies();
  more.copy(unit[1], slot[1] + weights);
  commit_copies();
  rows.load_super(unit[0]);
  more.load_super(unit[1]);
  const TileActivations<N, kValues> activations(a.p, first_token);
  let_next_start();
  uint32_t own[kSteps][4];
  uint32_t other[kSteps / 2][4];
  wait_copies<1>();
  sync_barrier(1 + group, kGroupThreads);
  rows.template unpack<kSteps / 2>(slot[0] + weights, 0, own);
  wait_copies<0>();
  sync_barrier(1 + group, kGroupThreads);
  more.template unpack<kSteps / 4>(slot[1] + weights, half, other);
  wait_for_previous();
  activations.copy(unit[0], slot[0]);
  activations.copy(unit[1], slot[1]);
  commit_copies();
  if (a.p.squares != nullptr) squares.load(a.p, first_token);
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 0;
  wait_copies<0>();
  fence_async_shared();
  __syncthreads();
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    multiply_columns(acc, own[step], operand(slot[0]) + operand_step(step, N));
  }
  const uint64_t tokens = operand(slot[1]) + static_cast<uint64_t>(half) * operand_step(kSteps / 2, N);
#pragma unroll
  for (int step = 0; step < kSteps / 2; ++step) {
    multiply_columns(acc, other[step], tokens + operand_step(step, N));
  }
  wgmma_commit();
  wgmma_wait<0>();
  pin(acc);
  __syncthreads();  // both warpgroups have read the activations
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

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 scaled(float4 v, float factor) {
  return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

// Four results of a tile, summed over the cluster, kParts blocks at a time; `at`: their address in each block's shared
// memory. This block's own are not read over the cluster's network.
template <int kParts>
__device__ __forceinline__ float4 cluster_sum(uint32_t at, int splits, int rank) {
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
  for (int first = 0; first < splits; first += kParts) {
    float4 parts[kParts];
#pragma unroll
    for (int r = 0; r < kParts; ++r) {
      parts[r] = make_float4(0, 0, 0, 0);
      if (first + r == rank) {
        const uint4 own = load_shared_16(at);
        parts[r] =
            make_float4(__uint_as_float(own.x), __uint_as_float(own.y), __uint_as_float(own.z), __uint_as_float(own.w));
      } else if (first + r < splits) {
        parts[r] = load_from(address_in(at, first + r));
      }
    }
#pragma unroll
    for (int r = 0; r < kParts; ++r) sum = add(sum, parts[r]);
    if constexpr (kParts == kMaxSplits) break;
  }
  return sum;
}

// Stores results of rows [row, row + 4) of a token, less where the weight ends. Where four are stored at a time they
// are complete.
__device__ __forceinline__ void store_four(const TileParams& a, const TileProduct::Segment& s, int token, int row,
                                           float4 v) {
  const TileProduct& p = a.p;
  const int64_t at = token * s.out_stride + row;
  if (a.fours) {
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

// Stores four results of a token, all of whose results of the tile the warp has, for the next product.
__device__ __forceinline__ void store_next(const TileProduct& p, int token, int row, bool exists, float4 v,
                                           float4 norm) {
  const int rows = p.segment[0].rows;
  if (exists) {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(p.next_x) + int64_t{token} * rows + row) = make_uint2(
        pack_pair<__nv_bfloat16>(v.x * norm.x, v.y * norm.y), pack_pair<__nv_bfloat16>(v.z * norm.z, v.w * norm.w));
  }
  float squares = exists ? fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w) : 0.0F;
  constexpr int kLanes = kSquaresRows / 4;
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) squares += __shfl_xor_sync(kFullMask, squares, step);
  if (threadIdx.x % kLanes == 0) p.next_squares[row / kSquaresRows * p.tokens + token] = squares;
}

// Results of a tile that a thread finishes: four rows of a token, or of many tokens every kTileThreads-th four.
template <int N>
struct TileShare {
  const TileParams& a;
  const TileProduct::Segment& s;
  int first_row, first_token, rank;
  int quad_shift;  // fours of a token: 2 to the power of this
  int end, passes;
  int next;  // the thread's next four
  TileShared shared;

  __device__ __forceinline__ TileShare(const TileParams& params, const TileProduct::Segment& segment, int row,
                                       int token, int block, const TileShared& memory)
      : a(params), s(segment), first_row(row), first_token(token), rank(block), shared(memory) {
    quad_shift = a.p.swiglu ? kQuadShift : kQuadShift + 1;
    const int count = min(a.p.tokens - first_token, N) << quad_shift;
    int share = (count + a.splits - 1) >> a.split_shift;
    if (a.p.next_x != nullptr) share = (share + kWarp - 1) / kWarp * kWarp;  // a warp has a whole token
    end = min((rank + 1) * share, count);
    passes = (share + kTileThreads - 1) / kTileThreads;
    next = rank * share + static_cast<int>(threadIdx.x);
  }

  struct Four {
    int token, row;  // of the tile
    bool counts, exists;
    float4 extra, next_norm;
  };
  // Where a result is, and what is added to it: loaded before it is waited for.
  __device__ __forceinline__ Four begin() {
    const TileProduct& p = a.p;
    Four f;
    f.token = next >> quad_shift;
    f.row = (next - (f.token << quad_shift)) * 4;
    f.counts = next < end;
    f.exists = f.counts && first_row + f.row < s.rows;
    f.extra = f.next_norm = make_float4(0, 0, 0, 0);
    next += kTileThreads;
    if (!f.exists || !a.fours) return f;
    if (s.bias != nullptr) f.extra = *reinterpret_cast<const float4*>(s.bias + first_row + f.row);
    if (p.residual != nullptr) {
      f.extra = add(f.extra, load_fresh4(p.residual + (first_token + f.token) * s.out_stride + first_row + f.row));
    }
    if (p.next_x != nullptr) f.next_norm = *reinterpret_cast<const float4*>(p.next_norm + first_row + f.row);
    return f;
  }

  // The sums of a four, normalized; `up` where that is a second result.
  __device__ __forceinline__ void add_up(const Four& f, float4& v, float4& up) const {
    // Many tokens have little code: see finish_tile().
    constexpr int kParts = N <= kFewTileTokens ? kMaxSplits : kMaxSplits / 2;
    const TileProduct& p = a.p;
    const uint32_t from = shared.ring + static_cast<uint32_t>(f.token * kResultStride + f.row) * 4U;
    float factor = 1;
    if (N <= kFewTileTokens && p.norm != nullptr) {
      float squares[kMaxSplits] = {};
#pragma unroll
      for (int r = 0; r < kMaxSplits; ++r) {
        if (r < a.splits) squares[r] = load_one_from(address_in(shared.squares + f.token * 4, r));
      }
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kMaxSplits; ++r) sum += squares[r];
      factor = rsqrtf(__fdividef(sum, static_cast<float>(p.k)) + p.eps);
    } else if (p.squares != nullptr) {
      factor = __uint_as_float(load_shared_4(shared.squares + static_cast<uint32_t>(f.token) * 4U));
    }
    v = up = scaled(cluster_sum<kParts>(from, a.splits, rank), factor);
    if (p.swiglu) up = scaled(cluster_sum<kParts>(from + kGroupRows * 4, a.splits, rank), factor);
  }

  __device__ __forceinline__ void store(const Four& f, float4 v, float4 up) const {
    const TileProduct& p = a.p;
    if (f.exists) {
      if (p.swiglu) v = make_float4(swiglu(v.x, up.x), swiglu(v.y, up.y), swiglu(v.z, up.z), swiglu(v.w, up.w));
      if (a.fours) v = add(v, f.extra);
      store_four(a, s, first_token + f.token, first_row + f.row, v);
    }
    if (p.next_x != nullptr && f.counts) {
      store_next(p, first_token + f.token, first_row + f.row, f.exists, v, f.next_norm);
    }
  }
};

// Adds up the results of the cluster and stores this block's share of them.
template <int N>
__device__ __forceinline__ void finish_tile(const TileParams& a, const TileProduct::Segment& s, int first_row,
                                            int first_token, int rank, const TileShared& shared,
                                            TokenSquares<N>& squares, const float (&acc)[N / 2]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  if (a.p.squares != nullptr) squares.store_factor(a.p, shared.squares);
  TileShare<N> share(a, s, first_row, first_token, rank, shared);
  // The ring's memory has no other use any more: results[token][row].
  const int my_row = thread / kWarp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < N / 2; ++j) {
    const int to_token = j / 4 * 8 + lane % 4 * 2 + j % 2;
    const uint32_t at = shared.ring + static_cast<uint32_t>(to_token * kResultStride + my_row + j / 2 % 2 * 8) * 4U;
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(acc[j]) : "memory");
  }
  arrive_cluster();
  typename TileShare<N>::Four four = share.begin();  // not before: the barrier's release would wait for its loads
  wait_cluster();
  // Not unrolled, so that most of it is in the instruction cache from the second four on. What is added to the next one
  // is loaded before this one is stored.
#pragma unroll 1
  for (int pass = 0; pass < share.passes;) {
    float4 v;
    float4 up;
    if (four.exists) share.add_up(four, v, up);
    const typename TileShare<N>::Four now = four;
    if (++pass < share.passes) four = share.begin();
    share.store(now, v, up);
  }
  arrive_cluster_relaxed();  // a block's shared memory is read until here: what was read has been stored
  wait_cluster();
}

#endif

// Segments are of type F or F2. kUnitAndHalf: see multiply_unit_and_half().
template <int N, DType F, DType F2, int kStages, bool kUnitAndHalf = false>
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
  if (N > kFewTileTokens) request_next_norm(a.p, first_row);
  TokenSquares<N> squares;
  float acc[N / 2];
  const auto multiply = [&]<DType kType>() {
    if constexpr (kUnitAndHalf) {
      multiply_unit_and_half<N, kType>(a, mine, my_row, first_token, rank, shared, squares, acc);
    } else if constexpr (is_plain(kType) || N <= kFewTileTokens) {
      multiply_tile<N, kType, kStages>(a, mine, my_row, first_token, rank, shared, squares, acc);
    } else {
      multiply_many<N, kType, kStages>(a, mine, my_row, first_token, rank, shared, squares, acc);
    }
  };
  if (F != F2 && mine.dtype == F2) {
    multiply.template operator()<F2>();
  } else {
    multiply.template operator()<F>();
  }
  finish_tile<N>(a, a.p.segment[segment], first_row, first_token, rank, shared, squares, acc);
#endif
}

}  // namespace inferno::cuda
