// The steps of batch_chain.cuh: how its products are cut, a block's tiles and their places in the ring, what blocks
// wait for, and the threads that copy.
#pragma once

#include "backend/cuda/kernels/batch_chain_task.h"
#include "backend/cuda/kernels/cluster.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/wgmma_columns.cuh"

namespace inferno::cuda {

inline constexpr int kChainGroup = 128;
inline constexpr int kChainConsumers = 2 * kChainGroup;
inline constexpr int kChainHelpers = 64;
inline constexpr int kChainThreads = kChainConsumers + kChainHelpers + 2 * kWarp;
inline constexpr int kChainStep = 128;                // values of k, half of them for each warpgroup
inline constexpr int kChainRow = kChainStep / 2 * 2;  // bytes of a row of such a half
inline constexpr int kChainRows = 64;                 // of a tile of output or down
inline constexpr int kChainBlocks = 128;

enum ChainPhase : int { kOutput, kGateUp, kDown, kHeads, kChainPhases };

struct ChainParams {
  BatchChain p;
  int steps[kChainPhases] = {};  // of k of a block
  int pairs[kChainPhases] = {};  // clusters that have a tile; none: the launch does not have the product
  CUtensorMap x[kChainPhases];
  CUtensorMap w[kChainPhases + 3];  // output, gate, down, heads, up
};

// How products of up to kTokens tokens are cut, and the shared memory of a block, from chain_memory() on.
template <int kTokens>
struct ChainTiles {
  static constexpr int kHalves = kTokens > 64 ? 2 : 1;   // of the tokens, for gate and up and the heads
  static constexpr int kTileTokens = kTokens / kHalves;  // of such a tile; wgmma's 64 rows are the most
  static constexpr int kHeadRows = 32 * kHalves;         // of such a tile
  static constexpr int kGateRows = 24 * kHalves;         // of gate and of up
  static constexpr int kQuarter = kTokens / 4;           // tokens of a tile of output or down
  static constexpr int kRing = 200 * 1024;
  static constexpr int kSlots = 16;                               // steps in the ring at most
  static constexpr int kPartStride = kChainRows + 4;              // floats between tokens of a part
  static constexpr int kPart = kQuarter * kPartStride * 4;        // a warpgroup's results of output or down
  static constexpr int kReceived = kRing + 2 * kPart;             // the other block's, of half of the tokens
  static constexpr int kGiven = kChainConsumers * kGateRows * 2;  // what the warpgroups give each other of gate and up
  static constexpr int kFactors = kRing + (3 * kPart > kGiven ? 3 * kPart : kGiven);
  static constexpr int kBarriers = kFactors + 64 * 4;
  static constexpr int kPlaced = kBarriers + (2 * kSlots + 1) * 8;  // steps whose memory is free
  static constexpr int kBytes = kPlaced + 8;

  // Bytes of a half of a step.
  [[nodiscard]] static INFERNO_HOST_DEVICE constexpr int weight_bytes(int phase) {
    return (phase == kGateUp ? 2 * kGateRows : phase == kHeads ? kHeadRows : kChainRows) * kChainRow;
  }
  [[nodiscard]] static INFERNO_HOST_DEVICE constexpr int token_bytes(int phase) {
    return (phase == kGateUp || phase == kHeads ? kTileTokens : kQuarter) * kChainRow;
  }
  [[nodiscard]] static INFERNO_HOST_DEVICE constexpr int step_bytes(int phase) {
    return 2 * (weight_bytes(phase) + token_bytes(phase));
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

extern __shared__ __align__(1024) uint8_t chain_shared[];
__device__ __forceinline__ uint32_t chain_memory(int at) {
  return shared_address(chain_shared) + static_cast<uint32_t>(at);
}

// Which tiles a block has.
template <int kTokens>
struct ChainPlace {
  using Tiles = ChainTiles<kTokens>;
  int rank, pair;

  __device__ __forceinline__ ChainPlace()
      : rank(static_cast<int>(blockIdx.x) % 2), pair(static_cast<int>(blockIdx.x) / 2) {}
  [[nodiscard]] __device__ __forceinline__ int steps(const ChainParams& a, int phase) const {
    return pair < a.pairs[phase] ? a.steps[phase] : 0;
  }
  [[nodiscard]] __device__ __forceinline__ int half() const { return pair % Tiles::kHalves; }  // of the tokens
  [[nodiscard]] __device__ __forceinline__ int token() const { return half() * Tiles::kTileTokens; }
  [[nodiscard]] __device__ __forceinline__ int quarter_token() const {
    return (half() * (4 / Tiles::kHalves) + pair / Tiles::kHalves % (4 / Tiles::kHalves)) * Tiles::kQuarter;
  }
  [[nodiscard]] __device__ __forceinline__ int row() const { return pair / 4 * kChainRows; }  // of output and down
  // Of the others: which tile of rows.
  [[nodiscard]] __device__ __forceinline__ int column() const { return pair / Tiles::kHalves * 2 + rank; }
};

// A sequence of steps and their places in the ring: all threads that follow it compute the same.
template <int kTokens>
struct ChainSteps {
  using Tiles = ChainTiles<kTokens>;
  using Place = ChainPlace<kTokens>;
  int phase;
  int left = 0;  // steps of it
  int bytes = 0;
  uint32_t number = 0;  // of the next step
  int end = 0;          // of the step before

  __device__ __forceinline__ ChainSteps(const ChainParams& a, const Place& place) : phase(-1) { enter(a, place); }
  // The next product of which the block has a tile.
  __device__ __forceinline__ void enter(const ChainParams& a, const Place& place) {
    while (left == 0 && ++phase < kChainPhases) left = place.steps(a, phase);
    bytes = Tiles::step_bytes(phase);
  }
  // Where the next step is; steps are contiguous.
  [[nodiscard]] __device__ __forceinline__ int at() const { return end + bytes > Tiles::kRing ? 0 : end; }
  __device__ __forceinline__ void pass() {
    end = at() + bytes;
    ++number;
    --left;
  }
  [[nodiscard]] __device__ __forceinline__ bool exist() const { return phase < kChainPhases; }
  [[nodiscard]] __device__ __forceinline__ uint32_t slot() const { return number % Tiles::kSlots * 8; }
  [[nodiscard]] __device__ __forceinline__ int parity() const { return static_cast<int>(number / Tiles::kSlots % 2); }
};

// ---- what blocks wait for ------------------------------------------------------------------------------------------

// Blocks that have stored their results of product `phase`, for the tokens of one half.
__device__ __forceinline__ uint32_t* chain_counter(const BatchChain& p, int phase, int half) {
  return p.counters + phase * 2 + half;
}
template <int kHalves>
__device__ __forceinline__ bool chain_ready(const ChainParams& a, int phase, int half) {
  uint32_t count;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
               : "=r"(count)
               : "l"(chain_counter(a.p, phase - 1, half))
               : "memory");
  return count >= static_cast<uint32_t>(2 * a.pairs[phase - 1] / kHalves);
}
// One thread of each producer of tokens and each helper warp, when it no longer waits: the last one of the launch makes
// the counters zero again.
__device__ __forceinline__ void chain_passed(const BatchChain& p) {
  constexpr uint32_t kWaiting = 1 + kChainHelpers / kWarp;
  uint32_t* passed = p.counters + kChainCounters - 1;
  if (atomicAdd(passed, 1) + 1 != kWaiting * gridDim.x) return;
  __threadfence();
  for (int i = 0; i < kChainCounters; ++i) p.counters[i] = 0;
}
// All consumers, after their stores.
__device__ __forceinline__ void chain_done(const ChainParams& a, int phase, int half) {
  asm volatile("fence.proxy.async.global;" ::: "memory");  // TMA reads them
  sync_barrier(1, kChainConsumers);
  if (threadIdx.x != 0) return;
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(chain_counter(a.p, phase, half)) : "memory");
}

__device__ __forceinline__ void arrive_in(uint32_t barrier, int rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in(barrier, rank)) : "memory");
}

// ---- producers -----------------------------------------------------------------------------------------------------

// Both halves of a step of some rows: a map of [half][row][64 values].
__device__ __forceinline__ void copy_halves(uint32_t to, const CUtensorMap* map, int k, int row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(to),
      "l"(map), "r"(0), "r"(row), "r"(k / (kChainStep / 2)), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Where the weights of a block's tile are; gate's, of gate and up.
struct ChainRows {
  int map;  // of ChainParams::w
  int row;
};
template <int kTokens>
__device__ __forceinline__ ChainRows chain_rows(const ChainParams& a, const ChainPlace<kTokens>& place, int phase) {
  using Tiles = ChainTiles<kTokens>;
  if (phase == kOutput || phase == kDown) return {phase, place.row()};
  if (phase == kGateUp) return {phase, place.column() * Tiles::kGateRows};
  const int row = place.column() * Tiles::kHeadRows;
  const int q = a.p.head[0].rows;
  const int k = a.p.head[1].rows;
  if (row < q) return {phase, row};
  return row < q + k ? ChainRows{kChainPhases + 1, row - q} : ChainRows{kChainPhases + 2, row - q - k};
}
// The value of k at which a block's steps begin.
template <int kTokens>
__device__ __forceinline__ int chain_first_k(const ChainParams& a, const ChainPlace<kTokens>& place, int phase) {
  return phase == kOutput || phase == kDown ? place.rank * a.steps[phase] * kChainStep : 0;
}

// One thread: weights of all steps, as soon as there is room.
template <int kTokens>
__device__ __forceinline__ void bring_chain_weights(const ChainParams& a, const ChainPlace<kTokens>& place,
                                                    uint32_t full) {
  using Tiles = ChainTiles<kTokens>;
  const uint32_t empty = full + Tiles::kSlots * 8;
  const uint32_t placed = chain_memory(Tiles::kPlaced);
  for (ChainSteps<kTokens> steps(a, place), oldest(steps); steps.exist(); steps.enter(a, place)) {
    const int phase = steps.phase;
    const ChainRows rows = chain_rows(a, place, phase);
    for (int k = chain_first_k(a, place, phase); steps.left > 0; k += kChainStep) {
      const int at = steps.at();
      // Steps are freed in order. One that goes back to the ring's beginning follows what is behind the step before it.
      const auto needs = [&](int other) {
        return (at <= other && other < at + steps.bytes) || (at < steps.end && steps.end <= other);
      };
      while (steps.number - oldest.number >= Tiles::kSlots || (steps.number != oldest.number && needs(oldest.at()))) {
        wait_barrier(empty + oldest.slot(), oldest.parity());
        oldest.pass();
        if (oldest.left == 0) oldest.enter(a, place);
      }
      const uint32_t barrier = full + steps.slot();
      const uint32_t to = chain_memory(at);
      arrive_expecting(barrier, steps.bytes);
      if (phase == kGateUp) {
        constexpr uint32_t kBytes = Tiles::kGateRows * kChainRow;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          copy_box(to + part * kBytes, &a.w[part % 2 == 0 ? kGateUp : kChainPhases], k + part / 2 * (kChainStep / 2),
                   rows.row, barrier);
        }
      } else {
        copy_halves(to, &a.w[rows.map], k, rows.row, barrier);
      }
      steps.pass();
      asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(placed), "r"(steps.number) : "memory");
    }
  }
}
// Waits until step `number` has its memory; `room` is what is known of that.
template <int kTokens>
__device__ __forceinline__ void wait_placed(uint32_t number, uint32_t& room) {
  while (static_cast<int>(room - number) <= 0) {
    asm volatile("ld.volatile.shared.u32 %0, [%1];"
                 : "=r"(room)
                 : "r"(chain_memory(ChainTiles<kTokens>::kPlaced))
                 : "memory");
  }
}

// One thread: activations of all steps, as soon as they exist.
template <int kTokens>
__device__ __forceinline__ void bring_chain_tokens(const ChainParams& a, const ChainPlace<kTokens>& place,
                                                   uint32_t full) {
  using Tiles = ChainTiles<kTokens>;
  uint32_t room = 0;
  for (ChainSteps<kTokens> steps(a, place); steps.exist(); steps.enter(a, place)) {
    const int phase = steps.phase;
    if (phase == kOutput) {
      wait_for_previous();
    } else {
      while (!chain_ready<ChainTiles<kTokens>::kHalves>(a, phase, place.half())) {
      }
    }
    asm volatile("fence.proxy.async.global;" ::: "memory");
    const bool split = phase == kOutput || phase == kDown;
    const int token = split ? place.quarter_token() : place.token();
    // Of tokens that a cluster shares, each block brings one half of k.
    const int half = split ? 0 : place.rank;
    const int offset = 2 * Tiles::weight_bytes(phase) + half * Tiles::token_bytes(phase);
    for (int k = chain_first_k(a, place, phase); steps.left > 0; k += kChainStep) {
      wait_placed<kTokens>(steps.number, room);
      const uint32_t barrier = full + steps.slot();
      const uint32_t to = chain_memory(steps.at() + offset);
      if (split) {
        copy_halves(to, &a.x[phase], k, token, barrier);
      } else {
        copy_box_to(3, to, &a.x[phase], k + half * kChainStep / 2, token, barrier);
      }
      steps.pass();
    }
  }
  chain_passed(a.p);
}

#endif

}  // namespace inferno::cuda
