// The products of a prompt's step, some hundreds of tokens, with wgmma and TMA (compute capability 9.0).
//
// A tile is some tokens, as rows of wgmma, times some rows of the weights, as its columns, so that a thread has pairs
// of adjacent results of a token. A producer warp keeps a ring of k steps of 64 values filled, two warpgroups multiply,
// and helper warps load what they need afterwards. The first weights are on their way before the wait for the previous
// kernel, unless that is still unpacking them.
//   heads, swiglu: 128 tokens, 64 per warpgroup, times 128 rows, or 96 of gate and up each.
//   residual: 64 tokens times 128 rows. There are few tiles with long rows, so the two blocks of a cluster have one
//   half of k each, and their warpgroups every second step of that. Each warpgroup adds up a quarter of the rows.
#pragma once

#include "backend/cuda/kernels/cluster.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/prompt_task.h"
#include "backend/cuda/kernels/wgmma_columns.cuh"

namespace inferno::cuda {

inline constexpr int kPromptGroup = 128;                   // threads of a warpgroup
inline constexpr int kPromptConsumers = 2 * kPromptGroup;  // threads that multiply
inline constexpr int kPromptHelpers = 2 * kWarp;
inline constexpr int kPromptThreads = kPromptConsumers + kWarp + kPromptHelpers;  // and the producer's warp
inline constexpr int kPromptCluster = 2;                                          // blocks that share k
inline constexpr int kPromptStep = 64;                                            // values of k
inline constexpr int kPromptRow = kPromptStep * 2;                                // bytes of a row of a step
// Named barriers; each warpgroup has one of its own before them.
inline constexpr int kFinish = 3;  // nobody reads the ring any more, and the extras are there
inline constexpr int kBothGroups = 4;

struct PromptParams {
  PromptProduct p;
  CUtensorMap x;
  CUtensorMap w[kMaxSegments];
  int token_tiles = 0;
  int first_tile[kMaxSegments + 1] = {};  // of each segment's rows
};

template <PromptProduct::Result kResult>
struct PromptTile {
  static constexpr bool kSplits = kResult == PromptProduct::Result::residual;
  static constexpr bool kPairs = kResult == PromptProduct::Result::swiglu;  // rows of two weights
  static constexpr int kTokens = kSplits ? 64 : 128;
  static constexpr int kRows = kPairs ? 192 : 128;
  static constexpr int kOutRows = kPairs ? kRows / 2 : kRows;  // of a weight
  static constexpr int kTokenBytes = kTokens * kPromptRow;
  static constexpr int kStepBytes = kTokenBytes + kRows * kPromptRow;
  static constexpr int kStages = (204 * 1024) / kStepBytes;
  static constexpr int kBarriers = kStages * kStepBytes;
  static constexpr int kExtras = kBarriers + 2 * kStages * 8;
  static constexpr int kSharedBytes = kExtras + 3 * 128 * 4 + 1024;  // the start is rounded up to 1024
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Where a block's tile is.
struct PromptPlace {
  int rank;  // in the cluster
  int segment, first_row, first_token;
  int first_step, steps;  // of k
};

template <PromptProduct::Result kResult>
__device__ __forceinline__ PromptPlace place_of(const PromptParams& a) {
  using T = PromptTile<kResult>;
  PromptPlace at;
  at.rank = T::kSplits ? static_cast<int>(blockIdx.x) % kPromptCluster : 0;
  const int block = static_cast<int>(blockIdx.x) / (T::kSplits ? kPromptCluster : 1);
  const int tile = block / a.token_tiles;
  at.segment = 0;
  while (kResult == PromptProduct::Result::heads && tile >= a.first_tile[at.segment + 1]) ++at.segment;
  at.first_row = (tile - a.first_tile[at.segment]) * T::kOutRows;
  at.first_token = (block - tile * a.token_tiles) * T::kTokens;
  const int steps = a.p.k / kPromptStep;
  at.first_step = at.rank * (steps / kPromptCluster);
  at.steps = !T::kSplits ? steps : at.rank == 0 ? steps / kPromptCluster : steps - steps / kPromptCluster;
  return at;
}

// One thread: steps into the ring as its stages become free.
template <PromptProduct::Result kResult>
__device__ __forceinline__ void produce_steps(const PromptParams& a, const PromptPlace& at, uint32_t ring,
                                              uint32_t full, uint32_t empty) {
  using T = PromptTile<kResult>;
  const auto bring_weights = [&](int i) {
    const int stage = i % T::kStages;
    const uint32_t to = ring + static_cast<uint32_t>(stage * T::kStepBytes + T::kTokenBytes);
    const int x = (at.first_step + i) * kPromptStep;
    const uint32_t barrier = full + static_cast<uint32_t>(stage * 8);
    arrive_expecting(barrier, T::kStepBytes);
    copy_box(to, &a.w[at.segment], x, at.first_row, barrier);
    if constexpr (T::kPairs) copy_box(to + T::kOutRows * kPromptRow, &a.w[1], x, at.first_row, barrier);
  };
  const auto bring_tokens = [&](int i) {
    const int stage = i % T::kStages;
    copy_box(ring + static_cast<uint32_t>(stage * T::kStepBytes), &a.x, (at.first_step + i) * kPromptStep,
             at.first_token, full + static_cast<uint32_t>(stage * 8));
  };
  const int ahead = min(T::kStages, at.steps);
  if (a.p.fresh_weights) wait_for_previous();
  for (int i = 0; i < ahead; ++i) bring_weights(i);
  wait_for_previous();
  for (int i = 0; i < ahead; ++i) bring_tokens(i);
  for (int i = ahead; i < at.steps; ++i) {
    wait_barrier(empty + static_cast<uint32_t>(i % T::kStages * 8), (i / T::kStages + 1) % 2);
    bring_weights(i);
    bring_tokens(i);
  }
}

// A warpgroup's part of the tile: 64 tokens times all rows.
template <PromptProduct::Result kResult>
__device__ __forceinline__ void multiply_steps(const PromptPlace& at, uint32_t ring, uint32_t full, uint32_t empty,
                                               float (&acc)[PromptTile<kResult>::kRows / 2]) {
  using T = PromptTile<kResult>;
  const int group = static_cast<int>(threadIdx.x) / kPromptGroup;
  const auto release = [&](int i) {
    if (threadIdx.x % kWarp == 0) arrive(empty + static_cast<uint32_t>(i % T::kStages * 8));
  };
#pragma unroll
  for (float& v : acc) v = 0;
  constexpr int kEvery = T::kSplits ? 2 : 1;
  const int first = T::kSplits ? group : 0;
  for (int i = first; i < at.steps; i += kEvery) {
    const int stage = i % T::kStages;
    wait_barrier(full + static_cast<uint32_t>(stage * 8), i / T::kStages % 2);
    const uint32_t tokens = ring + static_cast<uint32_t>(stage * T::kStepBytes);
    const uint64_t x = operand(tokens + (T::kSplits ? 0U : static_cast<uint32_t>(group * 64 * kPromptRow)));
    const uint64_t w = operand(tokens + T::kTokenBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kPromptStep / 16; ++step) {
      multiply_columns(acc, x + operand_step(step, 64), w + operand_step(step, T::kRows));
    }
    wgmma_commit();
    if (i > first) {
      wgmma_wait<1>();
      release(i - kEvery);
    }
  }
  wgmma_wait<0>();
  pin(acc);
}

// What the helpers load for the tokens of a tile while others multiply, as arrays of 128 in shared memory. `helper`:
// which thread of them.
struct PromptExtras {
  float* factor;  // of the norm of each token
  int* line;      // of heads: a token's row in the cache, of the first head; or -1
  float* norm;    // of heads: weights of the QK-norm

  __device__ __forceinline__ explicit PromptExtras(uint8_t* memory)
      : factor(reinterpret_cast<float*>(memory)), line(reinterpret_cast<int*>(factor + 128)), norm(factor + 256) {}

  template <int kDim>
  __device__ __forceinline__ void load_heads(const PromptProduct& p, const PromptPlace& at, int helper) const {
    const float* weights = at.segment == 0 ? p.heads.norms.q : p.heads.norms.k;
    for (int i = helper; i < 128; i += kPromptHelpers) {
      const KvLayerView& kv = p.heads.kv;
      const int slot = at.first_token + i < p.tokens ? p.heads.batch.slot[at.first_token + i] : -1;
      line[i] = slot < 0 ? -1 : slot / kv.page_size * kv.kv_heads * kv.page_size + slot % kv.page_size;
      norm[i] = weights != nullptr ? weights[i % kDim] : 1.0F;
    }
  }
  __device__ __forceinline__ void load_factors(const PromptProduct& p, const PromptPlace& at, int helper) const {
    constexpr int kMine = 128 / kPromptHelpers;  // tokens
    constexpr int kBatch = 8;                    // parts whose loads are in flight together
    const int parts = p.squares != nullptr ? p.k / kPromptSquaresRows : 0;
    float sum[kMine] = {};
    for (int part = 0; part < parts; part += kBatch) {
      float squares[kBatch][kMine] = {};
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (part + j >= parts) break;
        const float* from = p.squares + int64_t{part + j} * p.tokens;
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
          squares[j][i] = load_fresh(from + min(at.first_token + helper + i * kPromptHelpers, p.tokens - 1));
        }
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
#pragma unroll
        for (int i = 0; i < kMine; ++i) sum[i] += squares[j][i];
      }
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      factor[helper + i * kPromptHelpers] = parts > 0 ? rsqrtf(sum[i] / static_cast<float>(p.k) + p.eps) : 1.0F;
    }
  }
};

// ---- results -------------------------------------------------------------------------------------------------------
// Value 4 n + 2 h + e of a thread is token my_token() + 8 h, column 8 n + my_column() + e.

__device__ __forceinline__ int my_token() {
  return static_cast<int>(threadIdx.x) % kPromptGroup / kWarp * 16 + static_cast<int>(threadIdx.x) % kWarp / 4;
}
__device__ __forceinline__ int my_column() {
  return static_cast<int>(threadIdx.x) % 4 * 2;
}

// Results of a warpgroup as 16-bit values on their way to memory: rows of kColumns pass through shared memory, so that
// stores are 16 bytes wide. The padding puts the words of a warp's stores into different banks.
template <int kColumns>
struct StagedRows {
  static constexpr int kStride = kColumns * 2 + 16;  // bytes
  static constexpr int kPieces = kColumns / 8;       // of 16 bytes
  uint32_t base;                                     // [64][kStride]

  __device__ __forceinline__ void put(int h, int n, uint32_t pair) const {
    const auto at = static_cast<uint32_t>((my_token() + 8 * h) * kStride + n * 16 + my_column() * 2);
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + at), "r"(pair) : "memory");
  }
  // Calls store(row, piece, 16 bytes) of all.
  template <typename Store>
  __device__ __forceinline__ void for_each(int barrier, Store store) const {
    sync_barrier(barrier, kPromptGroup);
#pragma unroll 2
    for (int item = static_cast<int>(threadIdx.x) % kPromptGroup; item < 64 * kPieces; item += kPromptGroup) {
      const int row = item / kPieces;
      const int piece = item % kPieces;
      store(row, piece, load_shared_16(base + static_cast<uint32_t>(row * kStride + piece * 16)));
    }
  }
};

// Rotation of the thread's two tokens, (cos, sin) of pairs: loaded before the products.
template <int kDim>
struct HeadRotation {
  static constexpr int kPieces = kDim / 8;
  bool half_split;
  float4 pairs[2][kPieces / 2];  // of piece n, or, where pairs are adjacent values, of pieces 2 n and 2 n + 1

  __device__ __forceinline__ HeadRotation(const PromptProduct& p, const PromptPlace& at, int token)
      : half_split(p.heads.rope.pairing == RopePairing::half_split) {
    const int column = my_column();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t position = at.segment < 2 ? p.heads.batch.pos[min(token + 8 * h, p.tokens - 1)] : 0;
      const float* from = static_cast<const float*>(p.heads.rope.table.data) + position * kDim;
#pragma unroll
      for (int n = 0; n < kPieces / 2; ++n) {
        if (half_split) {
          pairs[h][n] = *reinterpret_cast<const float4*>(from + 2 * (n * 8 + column));
        } else {
          const float2 low = *reinterpret_cast<const float2*>(from + 2 * n * 8 + column);
          const float2 high = *reinterpret_cast<const float2*>(from + (2 * n + 1) * 8 + column);
          pairs[h][n] = make_float4(low.x, low.y, high.x, high.y);
        }
      }
    }
  }

  // Of a head whose values are v[4 n + 2 h] and the next.
  __device__ __forceinline__ void apply(float* v, int h) const {
    const auto rotate = [](float& x, float& y, float cosine, float sine) {
      const float before = x;
      x = before * cosine - y * sine;
      y = before * sine + y * cosine;
    };
    if (half_split) {
#pragma unroll
      for (int n = 0; n < kPieces / 2; ++n) {
        float* low = v + 4 * n + 2 * h;
        float* high = low + 2 * kPieces;
        rotate(low[0], high[0], pairs[h][n].x, pairs[h][n].y);
        rotate(low[1], high[1], pairs[h][n].z, pairs[h][n].w);
      }
    } else {
#pragma unroll
      for (int n = 0; n < kPieces / 2; ++n) {
        float* even = v + 8 * n + 2 * h;
        rotate(even[0], even[1], pairs[h][n].x, pairs[h][n].y);
        rotate(even[4], even[5], pairs[h][n].z, pairs[h][n].w);
      }
    }
  }
};

// QK-norm of a head whose values are v[4 n + 2 h] and the next.
template <int kDim>
__device__ __forceinline__ void normalize_head(float* v, int h, const float* norm, float eps) {
  float squares = 0;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    const float* x = v + 4 * n + 2 * h;
    squares = fmaf(x[0], x[0], fmaf(x[1], x[1], squares));
  }
  squares += __shfl_xor_sync(kFullMask, squares, 1);
  squares += __shfl_xor_sync(kFullMask, squares, 2);
  const float factor = rsqrtf(squares / static_cast<float>(kDim) + eps);
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    const float2 w = *reinterpret_cast<const float2*>(norm + n * 8 + my_column());
    v[4 * n + 2 * h] *= factor * w.x;
    v[4 * n + 2 * h + 1] *= factor * w.y;
  }
}

template <typename T, int kDim>
__device__ __forceinline__ void store_heads(const PromptProduct& p, const PromptPlace& at, float (&acc)[64],
                                            const HeadRotation<kDim>& rotation, const PromptExtras& extras,
                                            uint32_t staging) {
  const RopeStore& a = p.heads;
  const int group = static_cast<int>(threadIdx.x) / kPromptGroup;
  const StagedRows<128> rows{staging};
  const bool query = at.segment == 0;
  const bool normalizes = at.segment < 2 && (query ? a.norms.q : a.norms.k) != nullptr;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float factor = extras.factor[group * 64 + my_token() + 8 * h];
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      acc[4 * n + 2 * h] *= factor;
      acc[4 * n + 2 * h + 1] *= factor;
    }
#pragma unroll
    for (int first = 0; first < 64; first += kDim / 2) {
      if (normalizes) normalize_head<kDim>(acc + first, h, extras.norm, a.norms.eps);
      if (at.segment < 2) rotation.apply(acc + first, h);
    }
#pragma unroll
    for (int n = 0; n < 16; ++n) rows.put(h, n, pack_pair<T>(acc[4 * n + 2 * h], acc[4 * n + 2 * h + 1]));
  }
  T* cache = static_cast<T*>(at.segment == 1 ? a.kv.k : a.kv.v);
  rows.for_each(1 + group, [&](int row, int piece, uint4 values) {
    const int token = at.first_token + group * 64 + row;
    const int column = at.first_row + piece * 8;
    const int line = extras.line[group * 64 + row];
    if (token >= p.tokens || column >= p.segment[at.segment].rows || (line < 0 && !query)) return;
    T* to = query ? static_cast<T*>(a.q_out) + int64_t{token} * p.segment[0].rows + column
                  : cache + int64_t{line + column / kDim * a.kv.page_size} * kDim + column % kDim;
    *reinterpret_cast<uint4*>(to) = values;
  });
}

__device__ __forceinline__ void store_swiglu(const PromptProduct& p, const PromptPlace& at, const float (&acc)[96],
                                             const PromptExtras& extras, uint32_t staging) {
  const int group = static_cast<int>(threadIdx.x) / kPromptGroup;
  const StagedRows<96> rows{staging};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float factor = extras.factor[group * 64 + my_token() + 8 * h];
#pragma unroll
    for (int n = 0; n < 12; ++n) {
      const float* gate = acc + 4 * n + 2 * h;
      const float* up = gate + 48;
      rows.put(
          h, n,
          pack_pair<__nv_bfloat16>(swiglu(gate[0] * factor, up[0] * factor), swiglu(gate[1] * factor, up[1] * factor)));
    }
  }
  rows.for_each(1 + group, [&](int row, int piece, uint4 values) {
    const int token = at.first_token + group * 64 + row;
    const int column = at.first_row + piece * 8;
    if (token >= p.tokens || column >= p.segment[0].rows) return;
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.out) + int64_t{token} * p.segment[0].rows + column) =
        values;
  });
}

// The quarter of a tile that a warpgroup of the cluster finishes: 32 columns of 64 tokens, 16 values of a thread.
struct ResidualQuarter {
  static constexpr int kValues = 16;
  int number, column, token;  // the thread's first
  float2 before[2][4];        // residual
  float2 norm[4];             // weights of the next norm

  __device__ __forceinline__ ResidualQuarter(const PromptProduct& p, const PromptPlace& at) {
    number = static_cast<int>(threadIdx.x) / kPromptGroup * 2 + at.rank;
    column = at.first_row + number * 32 + my_column();
    token = at.first_token + my_token();
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      norm[n] = make_float2(0, 0);
      if (p.next_norm != nullptr && column + n * 8 < p.segment[0].rows) {
        norm[n] = *reinterpret_cast<const float2*>(p.next_norm + column + n * 8);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        before[h][n] = make_float2(0, 0);
        if (exists(p, h, n)) before[h][n] = __ldcg(reinterpret_cast<const float2*>(p.residual + index(p, h, n)));
      }
    }
  }
  [[nodiscard]] __device__ __forceinline__ bool exists(const PromptProduct& p, int h, int n) const {
    return token + 8 * h < p.tokens && column + n * 8 < p.segment[0].rows;
  }
  [[nodiscard]] __device__ __forceinline__ int64_t index(const PromptProduct& p, int h, int n) const {
    return int64_t{token + 8 * h} * p.segment[0].rows + column + n * 8;
  }

  // Adds up the four parts: first both warpgroups half of the columns each, then both blocks a quarter each. What is
  // given to the other one is at [warpgroup][four values][thread] of `memory`; between the two steps it is free again.
  __device__ __forceinline__ void add_up(const float (&acc)[64], uint32_t memory, float (&sum)[kValues]) const {
    constexpr int kHalf = 2 * kValues;
    const int group = number / 2;
    const int rank = number % 2;
    const auto place = [&](int whose, int four) {
      const auto thread = static_cast<int>(threadIdx.x) % kPromptGroup;
      return memory + static_cast<uint32_t>(((whose * (kHalf / 4) + four) * kPromptGroup + thread) * 16);
    };
    const auto give = [&](int four, const float* low, const float* high, bool gives_high) {
      const auto value = [&](int i) { return gives_high ? high[i] : low[i]; };
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(place(group, four)), "f"(value(0)), "f"(value(1)),
                   "f"(value(2)), "f"(value(3))
                   : "memory");
    };
    float half[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; i += 4) give(i / 4, acc + i, acc + kHalf + i, group == 0);
    sync_barrier(kBothGroups, kPromptConsumers);
#pragma unroll
    for (int i = 0; i < kHalf; i += 4) {
      const uint4 other = load_shared_16(place(1 - group, i / 4));
      const uint32_t values[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        half[i + j] = (group == 0 ? acc[i + j] : acc[kHalf + i + j]) + __uint_as_float(values[j]);
      }
    }
    sync_barrier(kBothGroups, kPromptConsumers);
#pragma unroll
    for (int i = 0; i < kValues; i += 4) give(i / 4, half + i, half + kValues + i, rank == 0);
    arrive_cluster();
    wait_cluster();
#pragma unroll
    for (int i = 0; i < kValues; i += 4) {
      const float4 other = load_from(address_in(place(group, i / 4), 1 - rank));
      const float values[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i + j] = (rank == 0 ? half[i + j] : half[kValues + i + j]) + values[j];
    }
  }

  __device__ __forceinline__ void store(const PromptProduct& p, const float (&sum)[kValues]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float squares = 0;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float2 v = make_float2(sum[4 * n + 2 * h] + before[h][n].x, sum[4 * n + 2 * h + 1] + before[h][n].y);
        if (!exists(p, h, n)) continue;
        *reinterpret_cast<float2*>(static_cast<float*>(p.out) + index(p, h, n)) = v;
        if (p.next_norm == nullptr) continue;
        *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.next_x) + index(p, h, n)) =
            pack_pair<__nv_bfloat16>(v.x * norm[n].x, v.y * norm[n].y);
        squares = fmaf(v.x, v.x, fmaf(v.y, v.y, squares));
      }
      if (p.next_norm == nullptr) continue;
      squares += __shfl_xor_sync(kFullMask, squares, 1);
      squares += __shfl_xor_sync(kFullMask, squares, 2);
      if (threadIdx.x % 4 == 0 && exists(p, h, 0)) {
        p.next_squares[int64_t{column / kPromptSquaresRows} * p.tokens + token + 8 * h] = squares;
      }
    }
  }
};

#endif

// Heads: T is the cache's type, kDim their size.
template <PromptProduct::Result kResult, typename T, int kDim>
__global__ void __launch_bounds__(kPromptThreads, 1) prompt_product_kernel(const __grid_constant__ PromptParams a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Tile = PromptTile<kResult>;
  constexpr bool kHeads = kResult == PromptProduct::Result::heads;
  extern __shared__ uint8_t unaligned[];
  uint8_t* memory = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t ring = shared_address(memory);
  const uint32_t full = ring + Tile::kBarriers;
  const uint32_t empty = full + Tile::kStages * 8;
  const PromptExtras extras(memory + Tile::kExtras);
  if (threadIdx.x == 0) {
    constexpr int kReaders = (Tile::kSplits ? kPromptGroup : kPromptConsumers) / kWarp;
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      init_barrier(full + static_cast<uint32_t>(stage * 8), 1);
      init_barrier(empty + static_cast<uint32_t>(stage * 8), kReaders);
    }
    fence_barrier_init();
  }
  __syncthreads();
  // A kernel whose weights are still being unpacked waits for them first.
  if (!a.p.fresh_weights) let_next_start();
  const auto begin = [&] {
    wait_for_previous();
    if (a.p.fresh_weights) let_next_start();
  };
  const PromptPlace at = place_of<kResult>(a);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  constexpr int kProducer = kPromptConsumers / kWarp;
  const int helper = static_cast<int>(threadIdx.x) - (kProducer + 1) * kWarp;
  constexpr int kFinishThreads = Tile::kSplits ? kPromptConsumers : kPromptConsumers + kPromptHelpers;
  if (warp >= kProducer) {
    if (warp == kProducer && elect_one()) {
      produce_steps<kResult>(a, at, ring, full, empty);
    } else if (helper < 0 || Tile::kSplits) {
      wait_for_previous();
    } else {
      if constexpr (kHeads) extras.load_heads<kDim>(a.p, at, helper);
      wait_for_previous();
      extras.load_factors(a.p, at, helper);
      arrive_at_barrier(kFinish, kFinishThreads);
    }
    if constexpr (Tile::kSplits) {  // the sums are exchanged
      arrive_cluster();
      wait_cluster();
    }
  } else {
    const int group = warp / (kPromptGroup / kWarp);
    const uint32_t staging = ring + static_cast<uint32_t>(group * 64 * StagedRows<128>::kStride);
    float acc[Tile::kRows / 2];
    if constexpr (Tile::kSplits) {
      begin();
      const ResidualQuarter quarter(a.p, at);
      multiply_steps<kResult>(at, ring, full, empty, acc);
      sync_barrier(kFinish, kFinishThreads);
      float sum[ResidualQuarter::kValues];
      quarter.add_up(acc, ring, sum);
      quarter.store(a.p, sum);
    } else if constexpr (kHeads) {
      const HeadRotation<kDim> rotation(a.p, at, at.first_token + group * 64 + my_token());
      begin();
      multiply_steps<kResult>(at, ring, full, empty, acc);
      sync_barrier(kFinish, kFinishThreads);
      store_heads<T, kDim>(a.p, at, acc, rotation, extras, staging);
    } else {
      begin();
      multiply_steps<kResult>(at, ring, full, empty, acc);
      sync_barrier(kFinish, kFinishThreads);
      store_swiglu(a.p, at, acc, extras, staging);
    }
  }
  if constexpr (Tile::kSplits) {
    arrive_cluster_relaxed();  // a block's shared memory is read until here: what was read has been stored
    wait_cluster();
  }
#endif
}

}  // namespace inferno::cuda
