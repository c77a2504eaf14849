// The product of several tokens, 2 to kMaxVectorTokens (compute capability 9.0): the kernel of vector_stream.cuh, which
// reads each weight once, with a column of activations per token.
//
//   quantized weights  a lane unpacks its group of a row once and multiplies it with every token's group;
//   BF16               the second operand of a tensor-core product has eight columns: one per token.
// Each warp (each unit of a quantized row) leaves a part of the sums: sums[part][row][column].
#pragma once

#include "backend/cuda/kernels/vector_stream.cuh"

namespace inferno::cuda {

// Two kernels share a multiprocessor's registers.
inline constexpr int kColumnsResident = 2;
inline constexpr int kTileColumns = 8;

// Bytes of one token's activations. Tiles: the columns of two tokens are in different banks.
__host__ __device__ constexpr int column_bytes(Activation a, int units) {
  return a == Activation::halves ? units * kUnit * 2 + 64 : activation_bytes(a, units);
}

// Types of weights that this kernel multiplies: F16's activations may need two columns each, F32 has no tiles.
__host__ __device__ constexpr bool has_columns(DType dtype) {
  return dtype != DType::f32 && dtype != DType::f16;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Loads the tokens' activations, each by a number of consecutive warps that is a power of two; see
// stream_activations.cuh for how a row is stored.
template <DType F>
class ColumnActivations {
 public:
  __device__ __forceinline__ ColumnActivations(const StreamParams& a, uint8_t* x, float* partial)
      : p_(a.p),
        groups_(a.units * 32),
        shift_(a.token_shift),
        x_(x),
        column_bytes_(a.column_bytes),
        partial_(partial) {}

  // After wait_for_previous(). On return all threads see all columns.
  __device__ __forceinline__ void run() const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int token = warp >> shift_;
    if (token < p_.tokens) {
      const int64_t row = p_.row_ids != nullptr ? p_.row_ids[token] : token;
      const float* from = p_.x + row * p_.k;
      const ActivationWriter<F> writer{x_ + token * column_bytes_, groups_};
      const int pieces = groups_ * (32 / kValues);
      const int step = kWarp << shift_;
      float squares = 0;
#pragma unroll 1
      for (int first = (warp & ((1 << shift_) - 1)) * kWarp; first < pieces; first += kPieces * step) {
        float values[kPieces][kValues];
        float weights[kPieces][kValues];
#pragma unroll
        for (int j = 0; j < kPieces; ++j) load(first + j * step + lane, from, 0, values[j]);
#pragma unroll
        for (int j = 0; j < kPieces; ++j) load(first + j * step + lane, p_.norm, 1, weights[j]);
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          if (first + j * step >= pieces) break;
#pragma unroll
          for (int c = 0; c < kValues; ++c) {
            squares = fmaf(values[j][c], values[j][c], squares);
            values[j][c] *= weights[j][c];
          }
          writer.put(first + j * step + lane, values[j]);
        }
      }
      if (p_.norm != nullptr) partial_[warp] = warp_sum(squares);
    }
    sync_first<kStreamThreads>();
  }

  // The factor of a token's products; after run().
  [[nodiscard]] __device__ __forceinline__ float factor(int token) const {
    if (p_.norm == nullptr) return 1;
    float sum = 0;
    for (int w = token << shift_; w < (token + 1) << shift_; ++w) sum += partial_[w];
    return rsqrtf(__fdividef(sum, static_cast<float>(p_.k)) + p_.eps);
  }

 private:
  static constexpr int kValues = ActivationWriter<F>::kValues;
  static constexpr int kPieces = 4;

  // `missing` where there is no array; zeros after its end.
  __device__ __forceinline__ void load(int piece, const float* from, float missing, float* v) const {
    const int i = piece * kValues;
#pragma unroll
    for (int c = 0; c < kValues; c += 4) {
      float4 four = make_float4(missing, missing, missing, missing);
      if (from != nullptr) four = i < p_.k ? load_fresh4(from + i + c) : make_float4(0, 0, 0, 0);
      v[c] = four.x, v[c + 1] = four.y, v[c + 2] = four.z, v[c + 3] = four.w;
    }
  }

  const VectorProduct& p_;
  int groups_;  // of 32 values, padded to whole units
  int shift_;
  uint8_t* x_;
  int column_bytes_;
  float* partial_;
};

// Sums of kCount values, a power of two, over the warp: lane l gets that of value l / (32 / kCount). Recursive, so that
// the values stay in registers.
template <int kCount, int kOffset = kWarp / 2>
__device__ __forceinline__ float warp_sums(const float (&v)[kCount], int lane) {
  if constexpr (kCount == 1) {
    if constexpr (kOffset == 0) {
      return v[0];
    } else {
      const float both[1] = {v[0] + __shfl_xor_sync(kFullMask, v[0], kOffset)};
      return warp_sums<1, kOffset / 2>(both, lane);
    }
  } else {
    constexpr int kHalf = kCount / 2;
    const bool high = (lane & kOffset) != 0;
    float half[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float other = __shfl_xor_sync(kFullMask, high ? v[i] : v[kHalf + i], kOffset);
      half[i] = (high ? v[kHalf + i] : v[i]) + other;
    }
    return warp_sums<kHalf, kOffset / 2>(half, lane);
  }
}

// Quantized rows of a chunk, as RowMultiplier has them.
template <DType F, bool kSwiglu, int kColumns>
struct RowColumns {
  static constexpr int kParts = kSwiglu ? 2 : 1;
  int lane, unit, row;

  __device__ __forceinline__ RowColumns(const StreamShare<F, kSwiglu>& w, int warp, int lane_)
      : lane(lane_),
        unit(static_cast<int>(w.a.unit_of_warp >> (4 * warp) & 15U)),
        row(static_cast<int>(w.a.row_of_warp >> (4 * warp) & 15U)) {}

  __device__ __forceinline__ void run(const StreamShare<F, kSwiglu>& w, uint32_t slot, int begin, int count) const {
    const int row_step = w.a.row_step;
    if (row >= row_step) return;
    const int part_space = chunk_space(w.bytes, w.a.chunk_rows);
    SharedRow base;
    base.q = slot;
    base.h = base.q + round_16(w.bytes.q * w.a.chunk_rows);
    base.s = base.h + round_16(w.bytes.h * w.a.chunk_rows);
    base.d = base.s + round_16(w.bytes.s * w.a.chunk_rows);
    const int last_token = w.a.p.tokens - 1;
#pragma unroll 1
    for (int first = row; first < count; first += row_step * (kBatch / kParts)) {
      float acc[kBatch * kColumns] = {};
#pragma unroll 1
      for (int u = unit; u < w.a.units; u += kStreamWarps) {
        typename Part<F>::Unpacked weights[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          // Rows after the last repeat it: their sums are discarded.
          const int r = min(first + i / kParts * row_step, count - 1);
          const uint32_t skip = i % kParts * part_space;
          const SharedRow at{base.q + skip + r * w.bytes.q, base.h + skip + r * w.bytes.h,
                             base.s + skip + r * w.bytes.s, base.d + skip + r * w.bytes.d};
          Part<F> part;
          part.load(at, w.bytes, u, lane);
          weights[i] = part.unpack();
        }
#pragma unroll
        for (int m = 0; m < kColumns; ++m) {
          const uint8_t* column = w.x + min(m, last_token) * w.a.column_bytes;
          const auto x = Part<F>::activations(column, w.a.units * 32, u, lane);
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            acc[i * kColumns + m] = Part<F>::multiply(weights[i], x, acc[i * kColumns + m]);
          }
        }
      }
      constexpr int kLanes = kWarp / (kBatch * kColumns);  // with the same sum
      const float sum = warp_sums(acc, lane);
      const int i = lane / kLanes / kColumns;
      const int r = first + i / kParts * row_step;
      if (lane % kLanes == 0 && r < count) {
        w.sums[unit * w.a.sum_stride + ((begin + r) * kParts + i % kParts) * kColumns + lane / kLanes % kColumns] = sum;
      }
    }
  }
};

// Tiles of BF16 rows: 16 rows, or 8 pairs with the gates in the upper half; a lane has 16 contiguous bytes of its rows
// as its part of two products. Adjacent rows are in the same banks, so odd ones load the two halves of 128 bytes in
// the other order.
template <DType F, bool kSwiglu, int kColumns>
struct TileColumns {
  static_assert(kColumns == kTileColumns && F == DType::bf16);
  static constexpr int kParts = kSwiglu ? 2 : 1;
  static constexpr int kTileRows = kSwiglu ? 8 : 16;
  int lane, warp, blocks;
  uint32_t x;  // this lane's operand

  __device__ __forceinline__ TileColumns(const StreamShare<F, kSwiglu>& w, int warp_, int lane_)
      : lane(lane_), warp(warp_), blocks(w.a.p.k / 64) {
    // Columns without a token repeat the last one: their sums are discarded.
    x = shared_address(w.x) + min(lane / 4, w.a.p.tokens - 1) * w.a.column_bytes + lane % 4 * 16;
  }

  static __device__ __forceinline__ void swap_if(bool swaps, uint4& a, uint4& b) {
    const uint4 first = a;
    a = swaps ? b : a;
    b = swaps ? first : b;
  }

  __device__ __forceinline__ void run(const StreamShare<F, kSwiglu>& w, uint32_t slot, int begin, int count) const {
    const int g = lane / 4;
    const bool odd_row = g % 2 != 0;
    const uint32_t near = odd_row ? 64 : 0;
#pragma unroll 1
    for (int first = 0; first < count; first += kTileRows) {
      const int upper = min(first + g, count - 1);
      const int lower = kSwiglu ? upper : min(first + g + 8, count - 1);
      // Rows that repeat the last one may have the other parity: the order is that of the lane.
      const uint32_t a = slot + upper * w.bytes.q + lane % 4 * 16;
      const uint32_t b =
          slot + (kSwiglu ? chunk_space(w.bytes, w.a.chunk_rows) : 0) + lower * w.bytes.q + lane % 4 * 16;
      float even[4] = {};
      float odd[4] = {};
#pragma unroll 2
      for (int block = warp; block < blocks; block += kStreamWarps) {
        const int at = block * 128;
        uint4 above[2] = {load_shared_16(a + at + near), load_shared_16(a + at + (near ^ 64))};
        uint4 below[2] = {load_shared_16(b + at + near), load_shared_16(b + at + (near ^ 64))};
        swap_if(odd_row, above[0], above[1]);
        swap_if(odd_row, below[0], below[1]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const uint4 values = load_shared_16(x + at + h * 64);
          mma<__nv_bfloat16>(even, above[h].x, below[h].x, above[h].y, below[h].y, values.x, values.y);
          mma<__nv_bfloat16>(odd, above[h].z, below[h].z, above[h].w, below[h].w, values.z, values.w);
        }
      }
      float* sums = w.sums + warp * w.a.sum_stride + lane % 4 * 2;
      const auto put = [&](int index, int i) {
        *reinterpret_cast<float2*>(sums + index * kColumns) = make_float2(even[i] + odd[i], even[i + 1] + odd[i + 1]);
      };
      if (first + g < count) put((begin + first + g) * kParts, 0);
      if constexpr (kSwiglu) {
        if (first + g < count) put((begin + first + g) * 2 + 1, 2);
      } else {
        if (first + g + 8 < count) put(begin + first + g + 8, 2);
      }
    }
  }
};

template <DType F, bool kSwiglu, int kColumns>
__device__ __forceinline__ void stream_columns(const StreamParams& a, int segment, uint8_t* shared) {
  constexpr int kParts = kSwiglu ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const StreamShare<F, kSwiglu> w(a, segment, shared);
  if (warp == kStreamWarps && lane < kMaxStages) {
    init_barrier(w.full + lane * 8, 1);
    init_barrier(w.empty + lane * 8, kStreamWarps);
    fence_barrier_init();
    fence_async_shared();
  }
  __syncthreads();
  if (warp == kStreamWarps) {
    prefetch_weights(w, lane);
    return;
  }
  const VectorProduct& p = a.p;
  const Segment& s = w.s;
  const ColumnActivations<F> activations(a, w.x, w.partial);
  wait_for_previous();

  // A thread stores every kStreamThreads-th result, columns of a row first; always the same column.
  const int mine = static_cast<int>(threadIdx.x);
  const int column = mine % kColumns;
  const int64_t at = int64_t{column} * s.rows + w.begin;  // of the column's first result
  const bool adds = p.residual != nullptr && column < p.tokens && mine / kColumns < w.rows;
  const float residual = adds ? load_fresh(p.residual + at + mine / kColumns) : 0.0F;
  activations.run();

  using Multiplier =
      std::conditional_t<on_tensor_cores(F), TileColumns<F, kSwiglu, kColumns>, RowColumns<F, kSwiglu, kColumns>>;
  const Multiplier multiplier(w, warp, lane);
  int slot = 0;
  int parity = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < w.chunks; ++chunk) {
    wait_barrier(w.full + slot * 8, parity);
    multiplier.run(w, w.ring + slot * a.slot_bytes, chunk << a.chunk_shift, w.chunk_count(chunk));
    __syncwarp();
    if (lane == 0) arrive(w.empty + slot * 8);
    if (++slot == a.stages) slot = 0, parity ^= 1;
  }
  sync_first<kStreamThreads>();
  if (column >= p.tokens) return;
  const float factor = activations.factor(column);
#pragma unroll 1
  for (int r = mine / kColumns; r < w.rows; r += kStreamThreads / kColumns) {
    float result[kParts] = {};
#pragma unroll 1
    for (int j = 0; j < a.row_parts; ++j) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        result[part] += w.sums[j * a.sum_stride + (r * kParts + part) * kColumns + column];
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) result[part] *= factor;
    float& out = s.out[at + r];
    if constexpr (kSwiglu) {
      out = swiglu(result[0], result[1]);
    } else {
      float extra = s.bias != nullptr ? s.bias[w.begin + r] : 0.0F;
      if (p.residual != nullptr) extra += r == mine / kColumns ? residual : load_fresh(p.residual + at + r);
      out = result[0] + extra;
    }
  }
}

#endif

// Segments are of type F or F2.
template <DType F, DType F2, bool kSwiglu, int kColumns>
__global__ void __launch_bounds__(kStreamThreads + kWarp, kColumnsResident)
    stream_columns_kernel(const __grid_constant__ StreamParams a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  const int block = static_cast<int>(blockIdx.x);
  int segment = 0;
  if constexpr (!kSwiglu) {
    while (segment + 1 < a.p.segments && block >= a.first_block[segment + 1]) ++segment;
  }
  if constexpr (F != F2) {
    if (a.p.segment[segment].dtype == F2) {
      stream_columns<F2, false, kColumns>(a, segment, shared);
      return;
    }
  }
  stream_columns<F, kSwiglu, kColumns>(a, segment, shared);
#endif
}

}  // namespace inferno::cuda
