// The product of up to 16 tokens (compute capability 9.0): as tile_product.cuh has it, in blocks of few rows and many
// values of k, which mostly have no parts of results to exchange. More tokens take longer to arrive than those parts,
// but for gate and up of quantized weights and up to 32 tokens.
//
// A block has 32 rows of a weight, or 16 of gate and of up each, and 1,024 values of k, 128 for each of its warps. A
// warp unpacks its weights into registers before it waits for the previous kernel; then the copy engine brings its
// activations. The warps' results are added up in shared memory. Of longer rows a cluster has the blocks of the same
// rows, which send each other results, each token's to one of them. The order of all sums is the same whatever the
// number of tokens.
#pragma once

#include "backend/cuda/kernels/cluster.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tensor_map.cuh"
#include "backend/cuda/kernels/tile_finish.cuh"
#include "backend/cuda/kernels/tile_rows.cuh"

namespace inferno::cuda {

inline constexpr int kNarrowRows = 32;
inline constexpr int kFragmentRows = 16;  // of an operand
inline constexpr int kNarrowValues = 1024;
inline constexpr int kSliceValues = 128;  // of a warp
inline constexpr int kSliceSteps = kSliceValues / 16;
inline constexpr int kSlices = kNarrowValues / kSliceValues;
static_assert(kSlices * kWarp == kTileThreads);
static_assert(kNarrowRows == squares_rows(kFewTileTokens));

struct NarrowParams {
  TileProduct p;
  CUtensorMap x;   // boxes of 64 values of N tokens
  int splits = 1;  // blocks of the same rows
  int first_tile[kMaxSegments + 1] = {};
};

// Shared memory of a block.
template <int N, DType F>
struct NarrowLayout {
  static constexpr int kSliceBytes = N * kSliceValues * 2;  // activations
  static constexpr int kUnits = kNarrowValues / tile_unit(F);
  static constexpr int kUnitBytes = unit_bytes(F, kFragmentRows);
  // Weights are [unit][half of the rows]. The activations of many tokens take their place once they are in registers.
  static constexpr bool kReplaces = N > kNarrowTokens;
  static constexpr int kWeights = kReplaces ? 0 : kSlices * kSliceBytes;
  static constexpr int kWeightsEnd = kWeights + 2 * kUnits * kUnitBytes;
  static constexpr int kReceived = kWeightsEnd > kSlices* kSliceBytes ? kWeightsEnd : kSlices* kSliceBytes;
  // Results of a warp take the place of its activations. Floats between tokens: stores are in different banks.
  static constexpr int kStride = kNarrowRows + 4;
  static_assert(N * kStride * 4 <= kSliceBytes);
};

// Where what is received begins, if rows are of two types.
template <int N, DType F, DType F2>
inline constexpr int kNarrowReceived =
    NarrowLayout<N, F>::kReceived > NarrowLayout<N, F2>::kReceived ? NarrowLayout<N, F>::kReceived
                                                                   : NarrowLayout<N, F2>::kReceived;

// Tokens of a block of the cluster, which adds up all blocks' results of them.
[[nodiscard]] INFERNO_HOST_DEVICE constexpr int tokens_of_block(int tokens, int splits, int block) {
  return (tokens - block + splits - 1) / splits;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// A warp's weights as operands of mma(): 128 values of 32 rows.
template <DType F>
struct NarrowOperands {
  uint32_t a[2][kSliceSteps][4];

  // Of rows from `low_row` and from `high_row` on, 16 each.
  __device__ __forceinline__ void load(const TileProduct::Segment& low, const TileProduct::Segment& high, int low_row,
                                       int high_row, int split, uint32_t weights) {
    using L = NarrowLayout<8, F>;  // the weights' is the same for all
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
    const int first_unit = split * L::kUnits;
    TileRows<F, kFragmentRows> rows[2] = {TileRows<F, kFragmentRows>(low, low_row),
                                          TileRows<F, kFragmentRows>(high, high_row)};
    const auto place = [&](int unit, int half) {
      return weights + static_cast<uint32_t>((2 * unit + half) * L::kUnitBytes);
    };
#pragma unroll
    for (int i = 0; i < L::kUnits / 2; ++i) {
      const int unit = group * (L::kUnits / 2) + i;
#pragma unroll
      for (int half = 0; half < 2; ++half) rows[half].copy(first_unit + unit, place(unit, half));
    }
    commit_copies();
    const int unit = warp * L::kUnits / kSlices;
    rows[0].load_super(first_unit + unit);
    rows[1].load_super(first_unit + unit);
    let_next_start();
    wait_copies<0>();
    sync_barrier(1 + group, kGroupThreads);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (is_plain(F)) {
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        const int row = lane % kFragmentRows;
#pragma unroll
        for (int step = 0; step < kSliceSteps; ++step) {
          const int piece = step * 2 + lane / kFragmentRows;
          load_matrices(a[half][step],
                        place(unit, half) + static_cast<uint32_t>(piece / 8 * (kFragmentRows * 128) + row * 128 +
                                                                  ((piece % 8 ^ row % 8) << 4)));
        }
      } else {
        rows[half].template unpack<kSliceSteps / 2>(place(unit, half), warp % 2, a[half]);
      }
    }
  }
};

// The products of a slice of k, whose activations are at `x`; results take their place.
template <int N, DType F>
__device__ __forceinline__ void multiply_slice(const NarrowOperands<F>& w, uint32_t x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int matrix = lane / 8;
  const int row = lane % 8;
  float acc[2][N / 8][4] = {};
  // Four matrices are the fragments of two steps of eight tokens, or of one step of 16.
  constexpr int kAtOnce = N == 8 ? 2 : 1;
#pragma unroll
  for (int step = 0; step < kSliceSteps; step += kAtOnce) {
    const int piece = step * 2 + (N == 8 ? matrix : matrix % 2);
    const uint32_t at = x + static_cast<uint32_t>(piece / 8 * (N * 128) + ((piece % 8 ^ row) << 4) + row * 128 +
                                                  (N == 8 ? 0 : matrix / 2 * 1024));
#pragma unroll
    for (int first = 0; first < N / 8; first += 2) {  // eights of tokens
      uint32_t b[4];
      load_matrices(b, at + static_cast<uint32_t>(first * 1024));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t(&now)[4] = w.a[half][step];
        mma<__nv_bfloat16>(acc[half][first], now[0], now[1], now[2], now[3], b[0], b[1]);
        const uint32_t(&next)[4] = w.a[half][step + kAtOnce - 1];
        constexpr int kSecond = N == 8 ? 0 : 1;
        mma<__nv_bfloat16>(acc[half][first + kSecond], next[0], next[1], next[2], next[3], b[2], b[3]);
      }
    }
  }
  __syncwarp();  // all lanes have read the activations
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      const int token = j / 4 * 8 + lane % 4 * 2 + j % 2;
      const int to_row = half * kFragmentRows + lane / 4 + j / 2 % 2 * 8;
      asm volatile(
          "st.shared.f32 [%0], %1;" ::"r"(x + static_cast<uint32_t>(token * NarrowLayout<N, F>::kStride + to_row) * 4U),
          "f"(acc[half][j / 4][j % 4])
          : "memory");
    }
  }
}

// Four results of a token, added up over the warps.
template <int N>
__device__ __forceinline__ float4 sum_of_slices(uint32_t base, int token, int row) {
  using L = NarrowLayout<N, DType::bf16>;
  float4 v = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kSlices; ++i) {
    v = add(v, load_shared_four(base + static_cast<uint32_t>(i * L::kSliceBytes + (token * L::kStride + row) * 4)));
  }
  return v;
}

// Where a block has what the others of its cluster send it, and the barrier that counts it.
struct NarrowExchange {
  uint32_t received, sent;
  int splits, split;
  int most;  // tokens of a block

  // Four results of a token from block `from` of the cluster, for block `to`.
  [[nodiscard]] __device__ __forceinline__ uint32_t place(int from, int to, int token, int row) const {
    const int other = from < to ? from : from - 1;
    return received + static_cast<uint32_t>(((other * most + token / splits) * kNarrowRows + row) * 4);
  }
  __device__ __forceinline__ void give(int token, int row, float4 v) const {
    const int owner = token % splits;
    send(address_in(place(split, owner, token, row), owner), v, address_in(sent, owner));
  }
  // The sum over the cluster, of which this block's part is `own`.
  [[nodiscard]] __device__ __forceinline__ float4 sum(int token, int row, float4 own) const {
    float4 v = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int i = 0; i < splits; ++i) v = add(v, i == split ? own : load_shared_four(place(i, split, token, row)));
    return v;
  }
};

template <int N, DType F, DType F2>
__device__ __forceinline__ void multiply_narrow(const NarrowParams& a, uint32_t base) {
  using L = NarrowLayout<N, F>;
  const TileProduct& p = a.p;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const int warp = thread / kWarp;
  const int tile = static_cast<int>(blockIdx.x) / a.splits;
  const int split = static_cast<int>(blockIdx.x) - tile * a.splits;
  int segment = 0;
  while (!p.swiglu && segment + 1 < p.segments && tile >= a.first_tile[segment + 1]) ++segment;
  const int first_row = (tile - a.first_tile[segment]) * (p.swiglu ? kFragmentRows : kNarrowRows);
  const TileProduct::Segment& s = p.segment[segment];

  NarrowExchange exchange;
  exchange.splits = a.splits;
  exchange.split = split;
  exchange.most = tokens_of_block(N, a.splits, 0);
  exchange.received = base + kNarrowReceived<N, F, F2>;
  const uint32_t arrived = exchange.received + static_cast<uint32_t>((a.splits - 1) * exchange.most * kNarrowRows * 4);
  exchange.sent = arrived + kSlices * 8;
  const uint32_t factors = exchange.sent + 8;
  if (thread == 0) {
    for (uint32_t i = 0; i <= kSlices; ++i) init_barrier(arrived + i * 8, 1);
    fence_barrier_init();
    arrive_expecting(exchange.sent, (a.splits - 1) * tokens_of_block(N, a.splits, split) * kNarrowRows * 4);
    // No kernel before has read it.
    if (p.next_norm != nullptr) asm volatile("prefetch.global.L2 [%0];" ::"l"(p.next_norm + first_row));
  }
  if (a.splits > 1) arrive_cluster();

  TokenSquares<N> squares;
  const auto multiply = [&]<DType kType>() {
    NarrowOperands<kType> weights;
    weights.load(s, p.swiglu ? p.segment[1] : s, first_row, p.swiglu ? first_row : first_row + kFragmentRows, split,
                 base + L::kWeights);
    if (a.splits > 1) wait_cluster();
    if constexpr (L::kReplaces) fence_async_shared();
    __syncthreads();  // barriers are ready, and all weights in registers
    wait_for_previous();
    const uint32_t slice = base + static_cast<uint32_t>(warp * L::kSliceBytes);
    const uint32_t barrier = arrived + static_cast<uint32_t>(warp) * 8;
    if (lane == 0) {
      arrive_expecting(barrier, L::kSliceBytes);
      constexpr int kBox = kSliceValues / 2;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        copy_box(slice + i * (N * kBox * 2), &a.x, split * kNarrowValues + warp * kSliceValues + i * kBox, 0, barrier);
      }
    }
    __syncwarp();
    if (p.squares != nullptr) squares.load(p, 0);
    wait_barrier(barrier, 0);
    multiply_slice<N, kType>(weights, slice);
  };
  if (F != F2 && s.dtype == F2) {
    multiply.template operator()<F2>();
  } else {
    multiply.template operator()<F>();
  }
  if (p.squares != nullptr) squares.finish(p, factors);

  // Each thread has four results of a token. What is added to them is loaded before they are waited for.
  constexpr int kQuads = kNarrowRows / 4;
  const int token = thread / kQuads;
  const int row = thread % kQuads * 4;
  const int64_t at = token * s.out_stride + first_row + row;
  const bool counts = token < p.tokens && (!p.swiglu || row < kFragmentRows);
  float4 extra = make_float4(0, 0, 0, 0);
  float4 next_norm = extra;
  if (counts) {
    if (s.bias != nullptr) extra = *reinterpret_cast<const float4*>(s.bias + first_row + row);
    if (p.residual != nullptr) extra = add(extra, load_fresh4(p.residual + at));
    if (p.next_x != nullptr) next_norm = *reinterpret_cast<const float4*>(p.next_norm + first_row + row);
  }
  __syncthreads();
  float4 v = make_float4(0, 0, 0, 0);
  bool mine = counts;
  if (token < N) v = sum_of_slices<N>(base, token, row);
  if (a.splits > 1) {
    mine = counts && token % a.splits == split;
    if (token < N && token % a.splits != split) exchange.give(token, row, v);
    wait_received(exchange.sent, 0);
    if (mine) v = exchange.sum(token, row, v);
  }
  if (mine) {
    float factor = 1;
    if (p.squares != nullptr) factor = __uint_as_float(load_shared_4(factors + static_cast<uint32_t>(token) * 4U));
    v = scaled(v, factor);
    if (p.swiglu) {
      float4 up = sum_of_slices<N>(base, token, row + kFragmentRows);
      if (a.splits > 1) up = exchange.sum(token, row + kFragmentRows, up);
      up = scaled(up, factor);
      v = make_float4(swiglu(v.x, up.x), swiglu(v.y, up.y), swiglu(v.z, up.z), swiglu(v.w, up.w));
    }
    v = add(v, extra);
    store_whole(p, s, token, first_row + row, v);
  }
  if (p.next_x != nullptr) store_next<kNarrowRows>(p, token, first_row + row, mine, mine, v, next_norm);
}

#endif

template <int N, DType F, DType F2>
__global__ void __launch_bounds__(kTileThreads, 2) narrow_product_kernel(const __grid_constant__ NarrowParams a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t unaligned[];
  constexpr uint32_t kAlignment = 1024;
  multiply_narrow<N, F, F2>(a, (shared_address(unaligned) + kAlignment - 1) / kAlignment * kAlignment);
#endif
}

template <int N, DType F, DType F2>
void launch_narrow_typed(const LaunchContext& c, const NarrowParams& a) {
  constexpr int kAlignment = 1024;
  const int shared = kNarrowReceived<N, F, F2> + (a.splits - 1) * tokens_of_block(N, a.splits, 0) * kNarrowRows * 4 +
                     (kSlices + 1) * 8 + N * 4 + kAlignment;
  const int blocks = a.first_tile[kMaxSegments] * a.splits;
  launch(c,
         {dim3(static_cast<unsigned>(blocks)), dim3(kTileThreads), shared > kTileSlot ? shared : kTileSlot, a.splits},
         narrow_product_kernel<N, F, F2>, a);
}

// False: the product has no such kernel.
template <int N>
[[nodiscard]] bool launch_narrow(const LaunchContext& c, const TileProduct& p) {
  constexpr int kMostSplits = 4;
  if (p.norm != nullptr || p.k % kNarrowValues != 0) return false;
  NarrowParams a;
  a.p = p;
  a.splits = p.k / kNarrowValues;
  const int rows_of_tile = p.swiglu ? kFragmentRows : kNarrowRows;
  for (int i = 0; i < kMaxSegments; ++i) {
    const bool counts = i < p.segments && (i == 0 || !p.swiglu);
    if (counts && (p.segment[i].rows % rows_of_tile != 0 || p.segment[i].out_stride % 4 != 0)) return false;
    a.first_tile[i + 1] = a.first_tile[i] + (counts ? p.segment[i].rows / rows_of_tile : 0);
  }
  // Of more tokens activations take longer to arrive: only gate and up of quantized weights gain, without an exchange.
  constexpr bool kMany = N > kNarrowTokens;
  if (kMany && (!p.swiglu || a.splits > 1 || is_plain(p.segment[0].dtype))) return false;
  if (a.splits > kMostSplits || a.first_tile[kMaxSegments] * a.splits > 2 * c.sm_count) return false;
  if (!map_rows(p.x, DType::bf16, p.tokens, p.k, int64_t{p.k} * 2, N, &a.x)) return false;
  (void)with_tile_types(p, [&]<DType F, DType F2>() {
    if constexpr (!kMany || !is_plain(F)) launch_narrow_typed<N, F, F2>(c, a);
  });
  return true;
}

}  // namespace inferno::cuda
