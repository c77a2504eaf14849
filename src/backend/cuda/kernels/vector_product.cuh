// Matrix–vector products for up to kMaxVectorTokens tokens. Included by one file per group of formats. On devices of
// compute capability 9.0 one token runs in vector_stream.cuh and several in stream_columns.cuh; this kernel does the
// rest.
//
// A block of eight warps prefetches its first weights, waits for the previous kernel, loads the activations
// (normalized, quantized) into shared memory, then multiplies. Each warp owns kRows rows of the output at a time; for
// few long rows several warps share a row (warps_per_row) and add up through shared memory. Large weights are covered
// by a fixed number of blocks, each with every blocks-th set of rows.
#pragma once

#include "backend/cuda/kernels/activations.cuh"
#include "backend/cuda/kernels/stream_launch.cuh"

namespace inferno::cuda {

inline constexpr int kVectorWarps = 8;
inline constexpr int kVectorThreads = kVectorWarps * kWarp;

struct VectorParams {
  VectorProduct p;
  int units = 0;  // per row
  int warps_per_row = 1;
  int first_block[kMaxSegments + 1] = {};  // of each segment
};

// Loads `tokens` rows of x into shared memory, M rows in all; missing rows and the tail of the last unit are zero.
template <DType F, int M>
__device__ __forceinline__ void load_activations(const VectorProduct& p, int units, uint8_t* x, float* partial) {
  const int token_bytes = activation_bytes(activation_of<F>(), units);
#pragma unroll 1
  for (int m = 0; m < M; ++m) {
    ActivationRow<F, kVectorThreads, M == 1 ? 2 : 0> row(p, m, units);
    row.load_norm();
    row.run(x + m * token_bytes, partial);
  }
}

// Rows a warp works on at once: enough bytes in flight per lane, few enough registers.
template <DType F, bool kSwiglu>
__host__ __device__ constexpr int rows_per_warp() {
  if (kSwiglu) return 1;
  return F == DType::f32 || F == DType::f16 || F == DType::bf16 ? 1 : 2;
}

// The rows of one segment (SwiGLU: of a pair of segments).
template <DType F, int M, bool kSwiglu>
__device__ __forceinline__ void multiply_rows(const VectorParams& a, int segment, uint8_t* shared) {
  constexpr int kRows = rows_per_warp<F, kSwiglu>();
  constexpr int kParts = kSwiglu ? 2 : kRows;
  constexpr Activation kKind = activation_of<F>();
  const VectorProduct& p = a.p;
  const Segment& s = p.segment[segment];
  const int block = static_cast<int>(blockIdx.x) - a.first_block[segment];
  const int blocks = a.first_block[segment + 1] - a.first_block[segment];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row_warps = kVectorWarps / a.warps_per_row;  // warps with rows of their own
  const int my_rows = warp / a.warps_per_row;
  const int first_unit = warp % a.warps_per_row;
  const int set_rows = row_warps * kRows;
  const int sets = (s.rows + set_rows - 1) / set_rows;
  const int token_bytes = activation_bytes(kKind, a.units);
  const RowBytes bytes = row_bytes_of<F>(s.w);

  Part<F> current[kParts];
  const auto load = [&](Part<F>* parts, int set, int unit) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = min((set * row_warps + my_rows) * kRows + r, s.rows - 1);
      parts[r].load(global_row<F>(s.w, row), bytes, unit, lane);
      if constexpr (kSwiglu) parts[1].load(global_row<F>(p.segment[1].w, row), bytes, unit, lane);
    }
  };
  if (first_unit < a.units) load(current, block, first_unit);
  let_next_start();
  wait_for_previous();

  auto* partial = reinterpret_cast<float*>(shared);  // kVectorWarps * kParts * M floats
  uint8_t* x = shared + kVectorWarps * kParts * M * static_cast<int>(sizeof(float));
  load_activations<F, M>(p, a.units, x, partial);

  for (int set = block; set < sets; set += blocks) {
    // The thread that will store output (row, m), and what it adds to the product.
    const int item = a.warps_per_row == 1 ? lane : static_cast<int>(threadIdx.x);
    const int items = a.warps_per_row == 1 ? kRows * M : row_warps * kRows * M;
    const int item_warp = a.warps_per_row == 1 ? my_rows : item / (kRows * M);
    const int m = item % M;
    const int row = (set * row_warps + item_warp) * kRows + item / M % kRows;
    const bool finishes = item < items && row < s.rows && m < p.tokens;
    const int64_t at = int64_t{m} * s.rows + row;
    float extra = 0;
    if (finishes && s.bias != nullptr) extra += s.bias[row];
    if (finishes && p.residual != nullptr) extra += load_fresh(p.residual + at);

    float acc[kParts][M] = {};
#pragma unroll 1
    for (int unit = first_unit; unit < a.units; unit += a.warps_per_row) {
      Part<F> next[kParts];
      int next_unit = unit + a.warps_per_row;
      int next_set = set;
      if (next_unit >= a.units) {
        next_unit = first_unit;
        next_set += blocks;
      }
      if (next_set < sets) load(next, next_set, next_unit);
#pragma unroll
      for (int r = 0; r < kParts; ++r) {
#pragma unroll
        for (int m = 0; m < M; ++m) {
          const auto v = Part<F>::activations(x + m * token_bytes, a.units * 32, unit, lane);
          acc[r][m] = current[r].multiply(v, acc[r][m]);
        }
        current[r] = next[r];
      }
    }

    float result[2] = {};
#pragma unroll
    for (int r = 0; r < kParts; ++r) {
#pragma unroll
      for (int t = 0; t < M; ++t) {
        const float sum = warp_sum(acc[r][t]);
        if (a.warps_per_row > 1) {
          if (lane == 0) partial[(warp * kParts + r) * M + t] = sum;
        } else if constexpr (kSwiglu) {
          if (lane == t) result[r] = sum;
        } else {
          if (lane == r * M + t) result[0] = sum;
        }
      }
    }
    if (a.warps_per_row > 1) {
      __syncthreads();
      if (item < items) {
        for (int w = 0; w < a.warps_per_row; ++w) {
          const int from = item_warp * a.warps_per_row + w;
          if constexpr (kSwiglu) {
            result[0] += partial[from * kParts * M + m];
            result[1] += partial[(from * kParts + 1) * M + m];
          } else {
            result[0] += partial[(from * kParts + item / M % kRows) * M + m];
          }
        }
      }
      __syncthreads();
    }
    if (finishes) s.out[at] = kSwiglu ? swiglu(result[0], result[1]) : result[0] + extra;
  }
}

// Blocks per multiprocessor that the registers allow: in decode, blocks of the next kernel have to fit beside this
// one's.
template <DType F, int M>
__host__ __device__ constexpr int resident_blocks() {
  if (M > 1) return 2;
  return F == DType::f32 ? 2 : 4;
}

// F2: the type of the last segment, where it differs (Q4_K_M keeps V in Q6_K).
template <DType F, DType F2, int M, bool kSwiglu>
__global__ void __launch_bounds__(kVectorThreads, resident_blocks<F, M>())
    vector_product_kernel(const __grid_constant__ VectorParams a) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int block = static_cast<int>(blockIdx.x);
  int segment = 0;
  if constexpr (!kSwiglu) {
    while (segment + 1 < a.p.segments && block >= a.first_block[segment + 1]) ++segment;
  }
  if constexpr (F != F2) {
    if (segment == a.p.segments - 1) {
      multiply_rows<F2, M, kSwiglu>(a, segment, shared);
      return;
    }
  }
  multiply_rows<F, M, kSwiglu>(a, segment, shared);
}

template <DType F, DType F2, int M, bool kSwiglu>
void launch_vector_kernel(const LaunchContext& c, const VectorProduct& p) {
  static_assert(M <= max_vector_tokens(F) && M == vector_columns(M), "no product is dispatched to this kernel");
  constexpr int kRows = rows_per_warp<F, kSwiglu>();
  constexpr int kBlocksPerSm = 4;  // enough warps to saturate the memory, and the next kernel's blocks still fit
  VectorParams a;
  a.p = p;
  a.units = divide_up(p.k, kUnit);
  int64_t rows = 0;
  for (int i = 0; i < (kSwiglu ? 1 : p.segments); ++i) rows += p.segment[i].rows;
  // Few rows: several warps share each, until every multiprocessor has about two blocks.
  while (a.warps_per_row < kVectorWarps && a.warps_per_row < a.units &&
         rows * a.warps_per_row * 2 <= int64_t{2} * c.sm_count * kVectorWarps * kRows) {
    a.warps_per_row *= 2;
  }
  const int set_rows = kVectorWarps / a.warps_per_row * kRows;
  const int most = c.sm_count * kBlocksPerSm;
  int64_t sets = 0;
  for (int i = 0; i < (kSwiglu ? 1 : p.segments); ++i) sets += divide_up(p.segment[i].rows, set_rows);
  for (int i = 0; i < kMaxSegments; ++i) {
    int blocks = 0;
    if (i < (kSwiglu ? 1 : p.segments)) {
      const int mine = divide_up(p.segment[i].rows, set_rows);
      // All segments of a large product share the blocks by their rows.
      blocks = sets <= most ? mine : static_cast<int>(divide_up<int64_t>(int64_t{mine} * most, sets));
    }
    a.first_block[i + 1] = a.first_block[i] + blocks;
  }
  constexpr int kParts = kSwiglu ? 2 : kRows;
  const int bytes =
      kVectorWarps * 2 * M * static_cast<int>(sizeof(float)) + M * activation_bytes(activation_of<F>(), a.units);
  static_assert(kParts <= 2);
  launch(c, {dim3(static_cast<unsigned>(a.first_block[kMaxSegments])), dim3(kVectorThreads), bytes},
         vector_product_kernel<F, F2, M, kSwiglu>, a);
}

// Token m of a product.
inline VectorProduct one_token(const VectorProduct& p, int m) {
  VectorProduct one = p;
  one.tokens = 1;
  if (p.row_ids != nullptr) {
    one.row_ids += m;
  } else {
    one.x += int64_t{m} * p.k;
  }
  if (p.residual != nullptr) one.residual += int64_t{m} * p.segment[0].rows;
  for (int i = 0; i < p.segments; ++i) one.segment[i].out += int64_t{m} * p.segment[i].rows;
  return one;
}

// Several tokens on a device of compute capability 9.0; types as in launch_vector_for. False: not for this kernel.
template <DType F, DType F2, DType S, DType S2>
bool launch_columns(const LaunchContext& c, const VectorProduct& p) {
  if constexpr (F == F2) {
    if (p.swiglu) return launch_stream<F, F, true, kTileColumns>(c, p);
  }
  return launch_stream<S, S2, false, kTileColumns>(c, p);
}

// S, S2: the types of the streaming kernels, F and F2 among them. Models that mix two types then run one kernel for
// both, whose code stays in the instruction cache.
template <DType F, DType F2 = F, DType S = F, DType S2 = F2>
void launch_vector_for(const LaunchContext& c, const VectorProduct& p) {
  const auto with_columns = [&]<int M>() {
    if (p.swiglu) {
      if constexpr (F == F2) launch_vector_kernel<F, F, M, true>(c, p);
    } else {
      launch_vector_kernel<F, F2, M, false>(c, p);
    }
  };
  if (c.hopper && p.tokens == 1) {
    if constexpr (F != DType::f32) {
      if constexpr (F == F2) {
        if (p.swiglu && launch_stream<F, F, true>(c, p)) return;
      }
      if (!p.swiglu && launch_stream<S, S2, false>(c, p)) return;
    }
  }
  if constexpr (has_few_rows(F)) {
    if (few_rows_fit(c, p)) {
      if (launch_stream<F, F, false, 1, kFewTokens>(c, p)) return;
    }
  }
  if constexpr (has_columns(F)) {
    if (c.hopper && p.tokens > 1) {
      if (launch_columns<F, F2, S, S2>(c, p)) return;
      for (int m = 0; m < p.tokens; ++m) launch_vector_for<F, F2, S, S2>(c, one_token(p, m));
      return;
    }
  }
  if constexpr (max_vector_tokens(F) > 1) {
    constexpr int kColumns = vector_columns(max_vector_tokens(F));
    static_assert(kColumns == vector_columns(2), "one kernel for all that are more than one");
    if (p.tokens > 1) return with_columns.template operator()<kColumns>();
  }
  with_columns.template operator()<1>();
}

// One function per type with kernels, each in the file that instantiates it, and those of mixes.
#define FORMAT(name, Name, ...) void launch_vector_##name(const LaunchContext& c, const VectorProduct& p);
#include "tensor/weight_formats.inc"
void launch_vector_q4_k_q6_k(const LaunchContext& c, const VectorProduct& p);
void launch_vector_q5_k_q6_k(const LaunchContext& c, const VectorProduct& p);

}  // namespace inferno::cuda
