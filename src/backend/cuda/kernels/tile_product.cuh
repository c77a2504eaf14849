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

// The factors of the tokens' norms, from the squares that the product before has added up.
template <int N>
__device__ __forceinline__ void store_factor(const TileProduct& p, int first_token, uint32_t factors) {
  const int token = static_cast<int>(threadIdx.x);
  if (token >= N || first_token + token >= p.tokens) return;
  const float* from = p.squares + first_token + token;
  float sum = 0;
#pragma unroll 8
  for (int part = 0; part < p.k / kSquaresRows; ++part) sum += load_fresh(from + part * p.tokens);
  const float factor = rsqrtf(__fdividef(sum, static_cast<float>(p.k)) + p.eps);
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(factors + static_cast<uint32_t>(token) * 4U), "f"(factor) : "memory");
}

// The block's part of the products of its rows.
template <int N, DType F, int kStages>
__device__ __forceinline__ void multiply_tile(const TileParams& a, const TileProduct::Segment& s, int first_row,
                                              int first_token, int rank, const TileShared& shared,
                                              float (&acc)[N / 2]) {
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
  // Many columns leave registers for half a unit at a time.
  constexpr bool kHalves = N > kFewTileTokens;
  constexpr int kHeld = kHalves ? kSteps / 2 : kSteps;
  uint32_t operands[is_plain(F) ? 1 : kHeld][4];
  if constexpr (!is_plain(F)) {
    wait_copies<kStages - 1>();
    sync_barrier(1 + group, kGroupThreads);
    rows.template unpack<0, kHeld / 2>(weights_in(slot_of(0)), operands);
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
    if (a.p.squares != nullptr) store_factor<N>(a.p, first_token, shared.squares);
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
      if (!kHalves && i + 1 < count) rows.load_super(unit_of(i + 1));
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
      for (int step = 0; step < kHeld; ++step) {
        multiply_columns(acc, operands[step], tokens + operand_step(step, N));
      }
      if constexpr (kHalves) {
        wgmma_commit();
        if constexpr (N == kPairColumns && kStages == 2)
          wgmma_wait<0>();  // two blocks share a multiprocessor, and its registers
        uint32_t rest[kHeld][4];
        rows.template unpack<kHeld / 2, kHeld / 2>(weights_in(slot), rest);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kHeld; ++step) {
          multiply_columns(acc, rest[step], tokens + operand_step(kHeld + step, N));
        }
      }
    }
    wgmma_commit();
    if constexpr (!is_plain(F) && kHalves) {
      if (i + 1 < count) rows.load_super(unit_of(i + 1));
    }
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
        rows.template unpack<0, kHeld / 2>(weights_in(slot_of(i + 1)), operands);
      }
    }
  }
}

// The same of quantized weights where a block has one and a half units, all of whose weights are operands before the
// previous kernel has ended: a unit of its own and half of one that it shares with the next or previous block.
template <int N, DType F>
__device__ __forceinline__ void multiply_unit_and_half(const TileParams& a, const TileProduct::Segment& s,
                                                       int first_row, int first_token, int rank,
                                                       const TileShared& shared, float (&acc)[N / 2]) {
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
  rows.template unpack<0, kSteps / 2>(slot[0] + weights, own);
  wait_copies<0>();
  sync_barrier(1 + group, kGroupThreads);
  if (half == 0) {
    more.template unpack<0, kSteps / 4>(slot[1] + weights, other);
  } else {
    more.template unpack<kSteps / 4, kSteps / 4>(slot[1] + weights, other);
  }
  wait_for_previous();
  activations.copy(unit[0], slot[0]);
  activations.copy(unit[1], slot[1]);
  commit_copies();
  if (a.p.squares != nullptr) store_factor<N>(a.p, first_token, shared.squares);
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

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 scaled(float4 v, float factor) {
  return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

// Four results of a tile, summed over the cluster; `at`: their address in each block's shared memory.
template <int kParts>
__device__ __forceinline__ float4 cluster_sum(uint32_t at, int splits) {
  float4 parts[kParts];
#pragma unroll
  for (int r = 0; r < kParts; ++r) {
    parts[r] = make_float4(0, 0, 0, 0);
    if (r < splits) parts[r] = load_from(address_in(at, r));
  }
  float4 sum = parts[0];
#pragma unroll
  for (int r = 1; r < kParts; ++r) sum = add(sum, parts[r]);
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
  const float squares = warp_sum(exists ? fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w) : 0.0F);
  if (threadIdx.x % kWarp == 0) p.next_squares[row / kSquaresRows * p.tokens + token] = squares;
}

// Results of a tile that a thread finishes: four rows of a token, or of many tokens every kTileThreads-th four.
template <int N>
struct TileShare {
  const TileParams& a;
  const TileProduct::Segment& s;
  int first_row, first_token;
  int quad_shift;  // fours of a token: 2 to the power of this
  int end, passes;
  int next;  // the thread's next four
  TileShared shared;

  __device__ __forceinline__ TileShare(const TileParams& params, const TileProduct::Segment& segment, int row,
                                       int token, int rank, const TileShared& memory)
      : a(params), s(segment), first_row(row), first_token(token), shared(memory) {
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
  template <int kParts>
  __device__ __forceinline__ void add_up(const Four& f, float4& v, float4& up) const {
    const TileProduct& p = a.p;
    const uint32_t from = shared.ring + static_cast<uint32_t>(f.token * kResultStride + f.row) * 4U;
    float factor = 1;
    if (N <= kFewTileTokens && p.norm != nullptr) {
      float squares[kParts] = {};
#pragma unroll
      for (int r = 0; r < kParts; ++r) {
        if (r < a.splits) squares[r] = load_one_from(address_in(shared.squares + f.token * 4, r));
      }
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kParts; ++r) sum += squares[r];
      factor = rsqrtf(__fdividef(sum, static_cast<float>(p.k)) + p.eps);
    } else if (p.squares != nullptr) {
      factor = __uint_as_float(load_shared_4(shared.squares + static_cast<uint32_t>(f.token) * 4U));
    }
    v = up = scaled(cluster_sum<kParts>(from, a.splits), factor);
    if (p.swiglu) up = scaled(cluster_sum<kParts>(from + kGroupRows * 4, a.splits), factor);
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
                                            const float (&acc)[N / 2]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  TileShare<N> share(a, s, first_row, first_token, rank, shared);
  typename TileShare<N>::Four four = share.begin();
  // The ring's memory has no other use any more: results[token][row].
  const int my_row = thread / kWarp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < N / 2; ++j) {
    const int to_token = j / 4 * 8 + lane % 4 * 2 + j % 2;
    const uint32_t at = shared.ring + static_cast<uint32_t>(to_token * kResultStride + my_row + j / 2 % 2 * 8) * 4U;
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(acc[j]) : "memory");
  }
  arrive_cluster();
  wait_cluster();
  // Of many tokens several fours at a time, whose loads are then in flight together.
  constexpr int kBatch = 4;
  constexpr int kFewParts = 2;
  float4 v[kBatch];
  float4 up[kBatch];
  if (N > kFewTileTokens && a.splits <= kFewParts) {
#pragma unroll 1
    for (int pass = 0; pass < share.passes; pass += kBatch) {
      typename TileShare<N>::Four fours[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) fours[i] = pass + i == 0 ? four : share.begin();
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (fours[i].exists) share.template add_up<kFewParts>(fours[i], v[i], up[i]);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) share.store(fours[i], v[i], up[i]);
    }
  } else {
#pragma unroll 1
    for (int pass = 0; pass < share.passes; ++pass) {
      if (pass > 0) four = share.begin();
      if (four.exists) share.template add_up<kMaxSplits>(four, v[0], up[0]);
      share.store(four, v[0], up[0]);
    }
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
  float acc[N / 2];
  const auto multiply = [&]<DType T>() {
    if constexpr (kUnitAndHalf) {
      multiply_unit_and_half<N, T>(a, mine, my_row, first_token, rank, shared, acc);
    } else {
      multiply_tile<N, T, kStages>(a, mine, my_row, first_token, rank, shared, acc);
    }
  };
  bool done = false;
  if constexpr (F != F2) {
    if (mine.dtype == F2) {
      multiply.template operator()<F2>();
      done = true;
    }
  }
  if (!done) multiply.template operator()<F>();
  finish_tile<N>(a, a.p.segment[segment], first_row, first_token, rank, shared, acc);
#endif
}

}  // namespace inferno::cuda
