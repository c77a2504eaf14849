// The products between two attentions, of 33 to 128 tokens (compute capability 9.0).
//
// One block per multiprocessor does its tile of each product, one after another, and waits for the tiles it depends on
// by counters in memory: a kernel for each product could have its weights in shared memory before its wait only where
// the one before leaves room for them. Here one ring of k steps is kept filled across the products: weights by one
// thread as far ahead as there is room, activations by another as soon as they are there. Of each step, two warpgroups
// multiply one half of k each.
//   gate and up, heads: up to 64 tokens times some rows, the tokens as the rows of wgmma. The two blocks of a cluster
//   have the same tokens, and each copies one half of each step for both.
//   output, down: 64 rows times a quarter of the tokens. The two blocks of a cluster have one half of k each, and
//   finish half of the tokens each.
// Helper warps load the squares of a norm.
#pragma once

#include "backend/cuda/kernels/chain_steps.cuh"

namespace inferno::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// ---- products ------------------------------------------------------------------------------------------------------

// A warpgroup's part of a tile: its half of each step. kRowsFirst: rows times tokens instead of tokens times rows.
template <int N, bool kRowsFirst, int kTokens>
__device__ __forceinline__ void multiply_chain(const ChainParams& a, const ChainPlace<kTokens>& place, uint32_t full,
                                               ChainSteps<kTokens>& steps, float (&acc)[N / 2]) {
  using Tiles = ChainTiles<kTokens>;
  const int group = static_cast<int>(threadIdx.x) / kChainGroup;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t empty = full + Tiles::kSlots * 8;
  constexpr int kWeightBytes = (kRowsFirst ? kChainRows : N) * kChainRow;
  constexpr int kTokenBytes = (kRowsFirst ? N : Tiles::kTileTokens) * kChainRow;
  const auto release = [&](uint32_t slot) {
    if (lane < 2) arrive_in(empty + slot, lane);
  };
#pragma unroll
  for (float& v : acc) v = 0;
  uint32_t before = 0;
#pragma unroll 1
  for (int i = 0; steps.left > 0; ++i) {
    const uint32_t at = chain_memory(steps.at());
    const uint32_t slot = steps.slot();
    wait_barrier(full + slot, steps.parity());
    const uint64_t rows = operand(at + static_cast<uint32_t>(group * kWeightBytes));
    const uint64_t tokens = operand(at + static_cast<uint32_t>(2 * kWeightBytes + group * kTokenBytes));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kChainStep / 32; ++step) {
      const uint64_t offset = operand_step(step, 0);
      multiply_columns(acc, (kRowsFirst ? rows : tokens) + offset, (kRowsFirst ? tokens : rows) + offset);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (i > 0) release(before);
    before = slot;
    steps.pass();
  }
  wgmma_wait<0>();
  pin(acc);
  release(before);
  steps.enter(a, place);
}

__device__ __forceinline__ void store_shared_16(uint32_t to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// A thread's share of output's or down's results: four rows of a token.
template <int kTokens>
struct ChainShare {
  using Tiles = ChainTiles<kTokens>;
  using Place = ChainPlace<kTokens>;
  static constexpr int kMine = Tiles::kQuarter / 2;  // tokens of the block
  int token, row;
  bool exists;
  float4 x;  // of the residual stream

  __device__ __forceinline__ ChainShare(const BatchChain& p, const Place& place) {
    const int thread = static_cast<int>(threadIdx.x);
    token = place.quarter_token() + place.rank * kMine + thread / 16;
    row = place.row() + thread % 16 * 4;
    exists = thread / 16 < kMine && token < p.tokens && row < p.width;
    x = make_float4(0, 0, 0, 0);
  }
  [[nodiscard]] __device__ __forceinline__ int64_t index(const BatchChain& p) const {
    return int64_t{token} * p.width + row;
  }
  __device__ __forceinline__ void load(const BatchChain& p) {
    if (exists) x = load_fresh4(p.x + index(p));
  }

  // Adds up the parts of the cluster's warpgroups, always in the same order. `barrier` counts what arrives from the
  // other block.
  __device__ __forceinline__ void add(const float (&acc)[Tiles::kQuarter / 2], const Place& place, uint32_t barrier,
                                      int parity) {
    using L = Tiles;
    const int thread = static_cast<int>(threadIdx.x);
    const int group = thread / kChainGroup;
    const int lane = thread % kWarp;
    constexpr int kHalf = L::kPart / 2;  // of the tokens
    const uint32_t part = chain_memory(L::kRing + group * L::kPart);
    const int my_row = thread % kChainGroup / kWarp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < Tiles::kQuarter / 2; ++j) {
      const int to_token = j / 4 * 8 + lane % 4 * 2 + j % 2;
      const uint32_t to = part + static_cast<uint32_t>((to_token * L::kPartStride + my_row + j / 2 % 2 * 8) * 4);
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(acc[j]) : "memory");
    }
    fence_async_shared();
    sync_barrier(2 + group, kChainGroup);
    if (thread % kChainGroup == 0) {
      const int other = 1 - place.rank;
      if (group == 0) arrive_expecting(barrier, 2 * kHalf);
      const uint32_t to = address_in(chain_memory(L::kReceived + group * kHalf), other);
      asm volatile(
          "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
          "r"(part + static_cast<uint32_t>(other * kHalf)), "r"(kHalf), "r"(address_in(barrier, other))
          : "memory");
    }
    sync_barrier(1, kChainConsumers);
    const auto at = static_cast<uint32_t>((thread / 16 * L::kPartStride + thread % 16 * 4) * 4);
    const uint32_t own = chain_memory(L::kRing + place.rank * kHalf) + at;
    const uint32_t received = chain_memory(L::kReceived) + at;
    wait_received(barrier, parity);
    if (thread / 16 >= kMine) return;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // blocks, warpgroups
      const bool mine = i / 2 == place.rank;
      const uint4 v = load_shared_16(mine ? own + i % 2 * L::kPart : received + i % 2 * kHalf);
      sum.x += __uint_as_float(v.x), sum.y += __uint_as_float(v.y);
      sum.z += __uint_as_float(v.z), sum.w += __uint_as_float(v.w);
    }
    x.x += sum.x, x.y += sum.y, x.z += sum.z, x.w += sum.w;
  }
  __device__ __forceinline__ void store_normed(const BatchChain& p, float4 norm) const {
    if (exists) {
      *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(p.normed_x) + index(p)) = make_uint2(
          pack_pair<__nv_bfloat16>(x.x * norm.x, x.y * norm.y), pack_pair<__nv_bfloat16>(x.z * norm.z, x.w * norm.w));
    }
    float squares = fmaf(x.x, x.x, x.y * x.y) + fmaf(x.z, x.z, x.w * x.w);
#pragma unroll
    for (int step = 8; step > 0; step /= 2) squares += __shfl_xor_sync(kFullMask, squares, step);
    if (threadIdx.x % 16 == 0 && exists) p.squares[row / kChainSquaresRows * p.tokens + token] = squares;
  }
};

// The other products' results: value 4 n + 2 h + e of a thread is token chain_token() + 8 h, column 8 n +
// chain_column() + e. The first warpgroup adds up those with h = 0, the second one the others.
__device__ __forceinline__ int chain_token() {
  const int thread = static_cast<int>(threadIdx.x);
  return thread % kChainGroup / kWarp * 16 + thread % kWarp / 4 + thread / kChainGroup * 8;
}
__device__ __forceinline__ int chain_column() {
  return static_cast<int>(threadIdx.x) % 4 * 2;
}
// mine[2 n + e]: the sums of this thread's token.
template <int kTokens, int kCount>
__device__ __forceinline__ void exchange_chain(const float (&acc)[kCount], float (&mine)[kCount / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % kChainGroup;
  const int group = static_cast<int>(threadIdx.x) / kChainGroup;
  const auto place = [&](int whose, int four) {
    constexpr int kFours = kCount / 8;
    return chain_memory(ChainTiles<kTokens>::kRing + ((whose * kFours + four) * kChainGroup + thread) * 16);
  };
  const auto of = [&](int i, int h) { return acc[i / 2 * 4 + 2 * h + i % 2]; };
#pragma unroll
  for (int i = 0; i < kCount / 2; i += 4) {
    const auto given = [&](int j) { return group == 0 ? of(i + j, 1) : of(i + j, 0); };
    store_shared_16(place(group, i / 4), given(0), given(1), given(2), given(3));
  }
  sync_barrier(1, kChainConsumers);
#pragma unroll
  for (int i = 0; i < kCount / 2; i += 4) {
    const uint4 v = load_shared_16(place(1 - group, i / 4));
    const uint32_t values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) mine[i + j] = (group == 0 ? of(i + j, 0) : of(i + j, 1)) + __uint_as_float(values[j]);
  }
}

template <int kTokens>
__device__ __forceinline__ float chain_factor(int token) {
  return __uint_as_float(load_shared_4(chain_memory(ChainTiles<kTokens>::kFactors + token * 4)));
}
inline constexpr int kChainFactors = 4;  // named barrier: the factors are there
__device__ __forceinline__ void wait_factors() {
  sync_barrier(kChainFactors, kChainConsumers + kChainHelpers);
}
// Factors of the product before have been read: its results are among what the helpers waited for.
__device__ __forceinline__ void factors_stored() {
  arrive_at_barrier(kChainFactors, kChainConsumers + kChainHelpers);
}

template <int kTokens>
__device__ __forceinline__ void finish_gate_up(const BatchChain& p, const ChainPlace<kTokens>& place,
                                               const float (&acc)[ChainTiles<kTokens>::kGateRows]) {
  constexpr int kRows = ChainTiles<kTokens>::kGateRows;
  float mine[kRows / 2];  // gate, up
  exchange_chain<kTokens>(acc, mine);
  wait_factors();
  const float factor = chain_factor<kTokens>(chain_token());
  const int token = place.token() + chain_token();
  if (chain_token() >= ChainTiles<kTokens>::kTileTokens || token >= p.tokens) return;
  auto* to =
      static_cast<__nv_bfloat16*>(p.middle_rows) + int64_t{token} * p.middle + place.column() * kRows + chain_column();
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    const float* gate = mine + 2 * n;
    const float* up = gate + kRows / 4;
    *reinterpret_cast<uint32_t*>(to + n * 8) =
        pack_pair<__nv_bfloat16>(swiglu(gate[0] * factor, up[0] * factor), swiglu(gate[1] * factor, up[1] * factor));
  }
}

template <int kTokens>
__device__ __forceinline__ void finish_heads(const BatchChain& p, const ChainPlace<kTokens>& place,
                                             const float (&acc)[ChainTiles<kTokens>::kHeadRows / 2]) {
  constexpr int kRows = ChainTiles<kTokens>::kHeadRows;
  float mine[kRows / 4];
  exchange_chain<kTokens>(acc, mine);
  wait_factors();
  const float factor = chain_factor<kTokens>(chain_token());
  const int token = place.token() + chain_token();
  if (chain_token() >= ChainTiles<kTokens>::kTileTokens || token >= p.tokens) return;
  const int rows = p.head[0].rows + p.head[1].rows + p.head[2].rows;
  auto* to = static_cast<__nv_bfloat16*>(p.heads) + int64_t{token} * rows + place.column() * kRows + chain_column();
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    *reinterpret_cast<uint32_t*>(to + n * 8) = pack_pair<__nv_bfloat16>(mine[2 * n] * factor, mine[2 * n + 1] * factor);
  }
}

// The factors of a norm, by the helpers: a token each.
template <int kTokens>
__device__ __forceinline__ void load_chain_factors(const ChainParams& a, const ChainPlace<kTokens>& place, int phase) {
  while (!chain_ready<ChainTiles<kTokens>::kHalves>(a, phase, place.half())) {
  }
  const int helper = static_cast<int>(threadIdx.x) - kChainConsumers;
  const float* from = a.p.squares + min(place.token() + helper, a.p.tokens - 1);
  const int parts = a.p.width / kChainSquaresRows;
  constexpr int kBatch = 16;
  float sum = 0;
#pragma unroll 1
  for (int first = 0; first < parts; first += kBatch) {
    float v[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) v[i] = first + i < parts ? load_fresh(from + (first + i) * a.p.tokens) : 0.0F;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) sum += v[i];
  }
  const float factor = rsqrtf(sum / static_cast<float>(a.p.width) + (phase == kGateUp ? a.p.mlp_eps : a.p.heads_eps));
  const uint32_t to = chain_memory(ChainTiles<kTokens>::kFactors + helper * 4);
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(factor) : "memory");
  factors_stored();
}

template <int kTokens>
__device__ __forceinline__ void consume_chain(const ChainParams& a, const ChainPlace<kTokens>& place, uint32_t full) {
  using Tiles = ChainTiles<kTokens>;
  const BatchChain& p = a.p;
  ChainSteps<kTokens> steps(a, place);
  ChainShare<kTokens> share(p, place);
  const uint32_t received = full + 2 * Tiles::kSlots * 8;
  share.load(p);
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    if (steps.phase == 2 * round) {
      const float* norm = round == 0 ? p.mlp_norm : p.heads_norm;
      float4 weights = make_float4(0, 0, 0, 0);
      if (norm != nullptr && share.exists) weights = *reinterpret_cast<const float4*>(norm + share.row);
      float acc[Tiles::kQuarter / 2];
      multiply_chain<Tiles::kQuarter, true>(a, place, full, steps, acc);
      share.add(acc, place, received, round);
      if (round == 1 && share.exists) *reinterpret_cast<float4*>(p.x + share.index(p)) = share.x;
      if (norm != nullptr) share.store_normed(p, weights);
      // Nobody waits for the last product of a chain, nor makes its counter zero.
      if (round == 0 || a.pairs[kHeads] > 0) chain_done(a, 2 * round, place.half());
    }
    if (steps.phase != 2 * round + 1) continue;
    if (round == 0) {
      float acc[Tiles::kGateRows];
      multiply_chain<2 * Tiles::kGateRows, false>(a, place, full, steps, acc);
      finish_gate_up<kTokens>(p, place, acc);
      chain_done(a, kGateUp, place.half());
    } else {
      float acc[Tiles::kHeadRows / 2];
      multiply_chain<Tiles::kHeadRows, false>(a, place, full, steps, acc);
      finish_heads<kTokens>(p, place, acc);
    }
  }
}

#endif

template <int kTokens>
__global__ void __launch_bounds__(kChainThreads, 1) batch_chain_kernel(const __grid_constant__ ChainParams a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tiles = ChainTiles<kTokens>;
  const uint32_t full = chain_memory(Tiles::kBarriers);
  const uint32_t empty = full + Tiles::kSlots * 8;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < Tiles::kSlots; ++slot) {
      init_barrier(full + static_cast<uint32_t>(slot * 8), 1);
      init_barrier(empty + static_cast<uint32_t>(slot * 8), 2 * kChainConsumers / kWarp);
    }
    init_barrier(empty + Tiles::kSlots * 8, 1);
    asm volatile("st.shared.u32 [%0], 0;" ::"r"(chain_memory(Tiles::kPlaced)) : "memory");
    fence_barrier_init();
  }
  if (threadIdx.x >= kChainConsumers && threadIdx.x < kChainConsumers + kChainHelpers) {
    for (int i = static_cast<int>(threadIdx.x) - kChainConsumers; i < 2 * kChainPhases + 3; i += kChainHelpers) {
      prefetch_map(i < kChainPhases ? &a.x[i] : &a.w[i - kChainPhases]);
    }
  }
  arrive_cluster();
  wait_cluster();
  let_next_start();
  const ChainPlace<kTokens> place;
  if (threadIdx.x < kChainConsumers) {
    wait_for_previous();
    consume_chain(a, place, full);
  } else if (threadIdx.x < kChainConsumers + kChainHelpers) {
    wait_for_previous();
#pragma unroll 1
    for (int phase = kGateUp; phase < kChainPhases; phase += 2) {
      if (place.steps(a, phase) > 0) load_chain_factors(a, place, phase);
    }
    if (threadIdx.x % kWarp == 0) chain_passed(a.p);
  } else {
    constexpr int kWeights = (kChainConsumers + kChainHelpers) / kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const bool one = elect_one();
    if (warp == kWeights && one) {
      if (a.p.fresh_weights) {
        wait_for_previous();
        asm volatile("fence.proxy.async.global;" ::: "memory");
      }
      bring_chain_weights(a, place, full);
    }
    if (warp == kWeights + 1 && one) bring_chain_tokens(a, place, full);
    __syncwarp();
    wait_for_previous();
  }
  arrive_cluster();  // a block's memory is written by the other one until here
  wait_cluster();
#endif
}

}  // namespace inferno::cuda
