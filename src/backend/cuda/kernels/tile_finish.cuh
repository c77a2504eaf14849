// The end of a product of some tens of tokens: the blocks of a cluster add up their results, always in the same order,
// and store them, with what follows the product. Up to 32 tokens they send each other what each adds up; of more they
// read it in each other's shared memory, since there is no room for what would be sent.
#pragma once

#include "backend/cuda/kernels/cluster.cuh"
#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/mma.cuh"
#include "backend/cuda/kernels/tile_types.h"

namespace inferno::cuda {

// Floats between the tokens of a tile's results in shared memory: a warp's stores are in different banks. The first
// after the results is the sum of squares of a token whose blocks normalize it.
inline constexpr int kResultStride = kTileRows + 4;
inline constexpr int kQuadShift = 4;  // 2 to the power of this: fours of a warpgroup's rows
static_assert(4 << kQuadShift == kGroupRows);
inline constexpr int kSquaresBytes = 1024;  // of all tokens, and a barrier; the ring after them is aligned

struct TileParams {
  TileProduct p;
  int units = 0;                          // of a row
  int splits = 1;                         // blocks that share a tile
  int split_shift = 0;                    // the power of two that they are
  int token_tiles = 1;                    // blocks of the same rows: each has N tokens
  int slot_bytes = 0;                     // of a unit: activations, then weights of both warpgroups
  int received = 0;                       // where, after the beginning of the ring, what other blocks send arrives
  bool fours = false;                     // results are stored four at a time
  int first_tile[kMaxSegments + 1] = {};  // of each segment
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Shared memory of a block: squares, then the ring of units.
struct TileShared {
  uint32_t squares, ring;

  __device__ __forceinline__ explicit TileShared(uint32_t base) : squares(base), ring(base + kSquaresBytes) {}
};

// The squares that the product before has added up, of which the threads of a token have some adjacent ones each: they
// are loaded without being waited for, and become the token's factor at the end. Parts are added in pairs, pairs of
// pairs and so on, whatever the number of a token's threads.
template <int N>
class TokenSquares {
  static constexpr int kParts = N <= kFewTileTokens ? 32 : 16;  // that are loaded at a time
  static constexpr int kShare = kTileThreads / N;               // threads of a token
  static constexpr int kCount = kParts / kShare;
  static constexpr int kWords = kCount < 4 ? kCount : 4;  // of a load; there are a multiple of four parts

 public:
  // After wait_for_previous().
  __device__ __forceinline__ void load(const TileProduct& p, int first_token) {
    const int token = static_cast<int>(threadIdx.x) / kShare;
    if (first_token + token >= p.tokens) return;
    const int parts = p.k / squares_rows(N);
    const float* from = p.squares + (first_token + token) * parts;
    const int mine = static_cast<int>(threadIdx.x) % kShare * kCount;
#pragma unroll
    for (int i = 0; i < kCount; i += kWords) {
      if (mine + i < parts) load_words(from + mine + i, v + i);
    }
#pragma unroll 1
    for (int at = mine + kParts; at < parts; at += kParts) {
#pragma unroll
      for (int i = 0; i < kCount; i += kWords) {
        if (at + i >= parts) break;
        float more[kWords];
        load_words(from + at + i, more);
#pragma unroll
        for (int n = 0; n < kWords; ++n) v[i + n] += more[n];
      }
    }
  }
  // After load(): the tokens' factors are stored to shared memory.
  __device__ __forceinline__ void finish(const TileProduct& p, uint32_t factors) {
#pragma unroll
    for (int step = 1; step < kCount; step *= 2) {
#pragma unroll
      for (int i = 0; i < kCount; i += 2 * step) v[i] += v[i + step];
    }
#pragma unroll
    for (int step = 1; step < kShare; step *= 2) v[0] += __shfl_xor_sync(kFullMask, v[0], step);
    if (threadIdx.x % kShare != 0) return;
    const float factor = rsqrtf(__fdividef(v[0], static_cast<float>(p.k)) + p.eps);
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(factors + threadIdx.x / kShare * 4U), "f"(factor) : "memory");
  }

 private:
  static __device__ __forceinline__ void load_words(const float* from, float* to) {
    if constexpr (kWords == 4) {
      const float4 four = load_fresh4(from);
      to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
    } else if constexpr (kWords == 2) {
      const float2 two = __ldcg(reinterpret_cast<const float2*>(from));
      to[0] = two.x, to[1] = two.y;
    } else {
      to[0] = load_fresh(from);
    }
  }

  float v[kCount] = {};
};

// Requests the norm's weights of the tile's rows, which no kernel before has read.
__device__ __forceinline__ void request_next_norm(const TileProduct& p, int first_row) {
  const int at = static_cast<int>(threadIdx.x) * kWarp;
  if (p.next_norm == nullptr || at >= kTileRows || first_row + at >= p.segment[0].rows) return;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p.next_norm + first_row + at));
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 scaled(float4 v, float factor) {
  return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

// What the blocks of a cluster send each other of their results, which are [N tokens][row] in the ring's place: each
// block adds up those of N / splits tokens, and the others send it their part of them.
template <int N>
class TileExchange {
  static constexpr uint32_t kTokenBytes = kResultStride * 4;

 public:
  __device__ __forceinline__ TileExchange(const TileParams& a, int rank, const TileShared& shared)
      : results_(shared.ring),
        received_(shared.ring + static_cast<uint32_t>(a.received)),
        barrier_(shared.squares + kSquaresBytes - 8),
        bytes_(static_cast<uint32_t>(N >> a.split_shift) * kTokenBytes),
        splits_(a.splits),
        rank_(rank) {}

  // All threads; the others send only after a barrier of the cluster, at which this arrives.
  __device__ __forceinline__ void open() const {
    if (threadIdx.x == 0) {
      init_barrier(barrier_, 1);
      fence_barrier_init();
      arrive_expecting(barrier_, static_cast<int>(bytes_) * (splits_ - 1));
    }
    arrive_cluster();
  }
  // All threads, which have stored results.
  __device__ __forceinline__ void send() const {
    fence_async_shared();
    __syncthreads();
    const int to = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp != 0 || to >= splits_ || to == rank_) return;
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address_in(place(rank_, to), to)),
                 "r"(results_ + static_cast<uint32_t>(to) * bytes_), "r"(bytes_), "r"(address_in(barrier_, to))
                 : "memory");
  }
  __device__ __forceinline__ void wait() const {
    __syncwarp();
    wait_received(barrier_, 0);
  }
  // Results of a token of this block's in block `from`; `at`: their place in the results.
  [[nodiscard]] __device__ __forceinline__ uint32_t part(int from, uint32_t at) const {
    if (from == rank_) return results_ + at;
    return place(from, rank_) + at - static_cast<uint32_t>(rank_) * bytes_;
  }

 private:
  [[nodiscard]] __device__ __forceinline__ uint32_t place(int from, int to) const {
    return received_ + static_cast<uint32_t>(from < to ? from : from - 1) * bytes_;
  }

  uint32_t results_, received_, barrier_, bytes_;
  int splits_, rank_;
};

__device__ __forceinline__ float4 load_shared_four(uint32_t at) {
  const uint4 v = load_shared_16(at);
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

// Four results of a tile, summed over the cluster, kParts blocks at a time: load(r) are block r's.
template <int kParts, typename Load>
__device__ __forceinline__ float4 cluster_sum(int splits, Load load) {
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
  for (int first = 0; first < splits; first += kParts) {
    float4 parts[kParts];
#pragma unroll
    for (int r = 0; r < kParts; ++r) {
      parts[r] = make_float4(0, 0, 0, 0);
      if (first + r < splits) parts[r] = load(first + r);
    }
#pragma unroll
    for (int r = 0; r < kParts; ++r) sum = add(sum, parts[r]);
    if constexpr (kParts == kMaxSplits) break;
  }
  return sum;
}

// Stores results of rows [row, row + 4) of a token.
__device__ __forceinline__ void store_whole(const TileProduct& p, const TileProduct::Segment& s, int token, int row,
                                            float4 v) {
  const int64_t at = token * s.out_stride + row;
  if (p.out_type == DType::bf16) {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(s.out) + at) =
        make_uint2(pack_pair<__nv_bfloat16>(v.x, v.y), pack_pair<__nv_bfloat16>(v.z, v.w));
  } else {
    *reinterpret_cast<float4*>(static_cast<float*>(s.out) + at) = v;
  }
}

// The same, or less where the weight ends. Where four are stored at a time they are complete.
__device__ __forceinline__ void store_four(const TileParams& a, const TileProduct::Segment& s, int token, int row,
                                           float4 v) {
  const TileProduct& p = a.p;
  const int64_t at = token * s.out_stride + row;
  if (a.fours) return store_whole(p, s, token, row, v);
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

// Stores four results of a token for the next product, and with those of the adjacent lanes, kSquares in all, their
// squares if the token `counts`. Results that do not exist are at the end of the weight.
template <int kSquares>
__device__ __forceinline__ void store_next(const TileProduct& p, int token, int row, bool counts, bool exists, float4 v,
                                           float4 norm) {
  const int rows = p.segment[0].rows;
  if (exists) {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(p.next_x) + int64_t{token} * rows + row) = make_uint2(
        pack_pair<__nv_bfloat16>(v.x * norm.x, v.y * norm.y), pack_pair<__nv_bfloat16>(v.z * norm.z, v.w * norm.w));
  }
  float squares = exists ? fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w) : 0.0F;
  constexpr int kLanes = kSquares / 4;
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) squares += __shfl_xor_sync(kFullMask, squares, step);
  if (counts && threadIdx.x % kLanes == 0) p.next_squares[(token * rows + row) / kSquares] = squares;
}

// Results of a tile that a thread finishes: four rows of a token, or of many tokens every kTileThreads-th four.
template <int N, bool kNorm>
struct TileShare {
  static constexpr bool kSent = N <= kFewTileTokens;
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
    int share = kSent ? N >> a.split_shift << quad_shift : (count + a.splits - 1) >> a.split_shift;
    if (!kSent && a.p.next_x != nullptr) share = (share + kWarp - 1) / kWarp * kWarp;  // a warp has a whole token
    end = min((rank + 1) * share, count);
    passes = (share + kTileThreads - 1) / kTileThreads;
    next = rank * share + static_cast<int>(threadIdx.x);
  }

  struct Four {
    int token, row;  // of the tile
    bool counts, exists;
    float4 extra, next_norm;
    float squares;  // kSent: some of the token's
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
    f.squares = kSent && f.counts && p.squares != nullptr ? some_squares(first_token + f.token) : 0.0F;
    next += kTileThreads;
    if (!f.exists || !a.fours) return f;
    if (s.bias != nullptr) f.extra = *reinterpret_cast<const float4*>(s.bias + first_row + f.row);
    if (p.residual != nullptr) {
      f.extra = add(f.extra, load_fresh4(p.residual + (first_token + f.token) * s.out_stride + first_row + f.row));
    }
    if (p.next_x != nullptr) f.next_norm = *reinterpret_cast<const float4*>(p.next_norm + first_row + f.row);
    return f;
  }

  // Of the sums of squares that the product before has stored, those of this thread among the token's. All of them are
  // added as TokenSquares does, here in factor().
  [[nodiscard]] __device__ __forceinline__ float some_squares(int token) const {
    const TileProduct& p = a.p;
    const int parts = p.k / squares_rows(N);
    const float* from = p.squares + token * parts;
    const int lane = static_cast<int>(threadIdx.x) % (1 << quad_shift);
    float2 sum = make_float2(0, 0);
#pragma unroll 1
    for (int first = 0; first < parts; first += kWarp) {
      if (quad_shift > kQuadShift) {
        if (first + lane < parts) sum.x += load_fresh(from + first + lane);
      } else if (first + 2 * lane < parts) {
        const float2 two = __ldcg(reinterpret_cast<const float2*>(from + first + 2 * lane));
        sum = make_float2(sum.x + two.x, sum.y + two.y);
      }
    }
    return sum.x + sum.y;
  }
  // The factor of a token's norm; whole warps.
  [[nodiscard]] __device__ __forceinline__ float factor(const Four& f) const {
    const TileProduct& p = a.p;
    if (p.squares == nullptr) return 1;
    if constexpr (!kSent) {
      return __uint_as_float(load_shared_4(shared.squares + static_cast<uint32_t>(f.token) * 4U));
    }
    float sum = f.squares;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const float other = __shfl_xor_sync(kFullMask, sum, step);
      if (step < 1 << quad_shift) sum += other;
    }
    return rsqrtf(__fdividef(sum, static_cast<float>(p.k)) + p.eps);
  }

  // The sums of a four, times `factor`, or normalized; `up` where that is a second result.
  __device__ __forceinline__ void add_up(const Four& f, float factor, float4& v, float4& up) const {
    // Many tokens have little code: see finish_tile().
    constexpr int kParts = N <= kFewTileTokens ? kMaxSplits : kMaxSplits / 2;
    const TileProduct& p = a.p;
    const TileExchange<N> exchange(a, rank, shared);
    const auto at = static_cast<uint32_t>(f.token * kResultStride) * 4U;
    const auto sum = [&](int row) {
      const uint32_t place = at + static_cast<uint32_t>(row) * 4U;
      return cluster_sum<kParts>(a.splits, [&](int r) {
        return kSent ? load_shared_four(exchange.part(r, place)) : load_from(address_in(shared.ring + place, r));
      });
    };
    if constexpr (kNorm) {
      float squares[kMaxSplits] = {};
#pragma unroll
      for (int r = 0; r < kMaxSplits; ++r) {
        if (r < a.splits) squares[r] = __uint_as_float(load_shared_4(exchange.part(r, at + kTileRows * 4)));
      }
      float total = 0;
#pragma unroll
      for (int r = 0; r < kMaxSplits; ++r) total += squares[r];
      factor = rsqrtf(__fdividef(total, static_cast<float>(p.k)) + p.eps);
    }
    v = up = scaled(sum(f.row), factor);
    if (p.swiglu) up = scaled(sum(f.row + kGroupRows), factor);
  }

  __device__ __forceinline__ void store(const Four& f, float4 v, float4 up) const {
    const TileProduct& p = a.p;
    if (f.exists) {
      if (p.swiglu) v = make_float4(swiglu(v.x, up.x), swiglu(v.y, up.y), swiglu(v.z, up.z), swiglu(v.w, up.w));
      if (a.fours) v = add(v, f.extra);
      store_four(a, s, first_token + f.token, first_row + f.row, v);
    }
    if (p.next_x != nullptr && f.counts) {
      store_next<squares_rows(N)>(p, first_token + f.token, first_row + f.row, true, f.exists, v, f.next_norm);
    }
  }
};

#endif

}  // namespace inferno::cuda
