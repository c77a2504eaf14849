// The product of several tokens, 2 to kMaxVectorTokens (compute capability 9.0): the kernel of vector_stream.cuh, which
// reads each weight once, with a column of activations per token.
//
// The second operand of a tensor-core product has eight columns, one per token: in 8 bits for quantized weights
// (stream_quant_tiles.cuh), else BF16. Each warp leaves a part of the sums: sums[part][row][column].
#pragma once

#include "backend/cuda/kernels/stream_quant_tiles.cuh"

namespace inferno::cuda {

// Two kernels share a multiprocessor's registers. With more than 96 attention would not fit beside this one (see
// attention_decode.cu).
inline constexpr int kColumnsResident = 2;

// Bytes of one token's activations: the columns of eight (BF16: two) tokens are in different banks.
__host__ __device__ constexpr int column_bytes(Activation a, int units) {
  return a == Activation::halves ? units * kUnit * 2 + 64 : activation_bytes(a, units) + 16;
}

// Types of weights that this kernel multiplies: F16's activations may need two columns each, F32 has no tiles.
__host__ __device__ constexpr bool has_columns(DType dtype) {
  return dtype != DType::f32 && dtype != DType::f16 && !has_codebook(dtype);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Loads the tokens' activations, each by a number of consecutive warps that is a power of two; see
// stream_activations.cuh for how a row is stored.
template <DType F>
class ColumnActivations {
 public:
  // Copies the norm's weights, which depend on no other kernel, to `norm`, shared memory for k values; it is free again
  // after run().
  __device__ __forceinline__ ColumnActivations(const StreamParams& a, uint8_t* x, float* partial, float* norm)
      : p_(a.p),
        groups_(a.units * 32),
        shift_(a.token_shift),
        x_(x),
        column_bytes_(a.column_bytes),
        partial_(partial),
        norm_(norm) {
    if (p_.norm == nullptr) return;
    for (int i = 4 * static_cast<int>(threadIdx.x); i < p_.k; i += 4 * kStreamThreads) {
      *reinterpret_cast<float4*>(norm_ + i) = *reinterpret_cast<const float4*>(p_.norm + i);
    }
    sync_first<kStreamThreads>();
  }

  // After wait_for_previous(). On return all threads see all columns.
  __device__ __forceinline__ void run() {
    const int token = static_cast<int>(threadIdx.x) / kWarp >> shift_;
    if (token < p_.tokens) {
      const int64_t row = p_.row_ids != nullptr ? p_.row_ids[token] : token;
      const float* from = p_.x + row * p_.k;
      const ActivationWriter<F> writer{x_ + token * column_bytes_, groups_};
      const int pieces = groups_ * (32 / kValues);
      float squares = 0;
#pragma unroll 1
      for (int at = first(); at < pieces; at += kPieces * step()) {
        float values[kPieces][kValues];
        load_all(at, from, values);
#pragma unroll
        for (int j = 0; j < kPieces; ++j) {
          if (at + j * step() >= pieces) break;
          if (p_.norm != nullptr) scale(at + j * step(), values[j], squares);
          writer.put(at + j * step(), values[j]);
        }
      }
      squares = p_.norm != nullptr ? warp_sum(squares) : 0.0F;
      if (p_.norm != nullptr) partial_[threadIdx.x / kWarp] = squares;
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

  // The thread's first piece, and the distance to its next.
  [[nodiscard]] __device__ __forceinline__ int first() const {
    return static_cast<int>(threadIdx.x) & ((kWarp << shift_) - 1);
  }
  [[nodiscard]] __device__ __forceinline__ int step() const { return kWarp << shift_; }
  // Multiplies a piece with its norm weights, and adds its squares.
  __device__ __forceinline__ void scale(int piece, float* v, float& squares) const {
    const int i = piece * kValues;
    if (i >= p_.k) return;
#pragma unroll
    for (int c = 0; c < kValues; c += 4) {
      const float4 w = *reinterpret_cast<const float4*>(norm_ + i + c);
#pragma unroll
      for (int n = 0; n < 4; ++n) squares = fmaf(v[c + n], v[c + n], squares);
      v[c] *= w.x, v[c + 1] *= w.y, v[c + 2] *= w.z, v[c + 3] *= w.w;
    }
  }
  // Pieces from `at` on, zeros after the end of the row.
  __device__ __forceinline__ void load_all(int at, const float* from, float (&v)[kPieces][kValues]) const {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const int i = (at + j * step()) * kValues;
#pragma unroll
      for (int c = 0; c < kValues; c += 4) {
        const float4 four = i < p_.k ? load_fresh4(from + i + c) : make_float4(0, 0, 0, 0);
        v[j][c] = four.x, v[j][c + 1] = four.y, v[j][c + 2] = four.z, v[j][c + 3] = four.w;
      }
    }
  }

  const VectorProduct& p_;
  int groups_;  // of 32 values, padded to whole units
  int shift_;
  uint8_t* x_;
  int column_bytes_;
  float* partial_;
  float* norm_;
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
#pragma unroll
      for (int i = 0; i < 4; ++i) even[i] += odd[i];
      store_tile_sums<kColumns>(w, warp, lane, begin, first, count, even);
    }
  }
};

template <DType F, bool kSwiglu, int kColumns>
__device__ __forceinline__ void stream_columns(const StreamParams& a, int segment, uint8_t* shared) {
  constexpr int kParts = kSwiglu ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const StreamShare<F, kSwiglu> w(a, segment, shared);
  w.open(warp == kStreamWarps, lane, kStreamWarps);
  if (warp == kStreamWarps) {
    prefetch_weights<on_tensor_cores(F) ? 0 : kRowPad>(w, lane);
    return;
  }
  const VectorProduct& p = a.p;
  const Segment& s = w.s;
  ColumnActivations<F> activations(a, w.x, w.partial, w.sums);
  wait_for_previous();

  // A thread stores every kStreamThreads-th result, columns of a row first; always the same column.
  const int mine = static_cast<int>(threadIdx.x);
  const int column = mine % kColumns;
  const int64_t at = int64_t{column} * s.rows + w.begin;  // of the column's first result
  const bool adds = p.residual != nullptr && column < p.tokens && mine / kColumns < w.rows;
  const float residual = adds ? load_fresh(p.residual + at + mine / kColumns) : 0.0F;
  activations.run();

  using Multiplier =
      std::conditional_t<on_tensor_cores(F), TileColumns<F, kSwiglu, kColumns>, QuantTiles<F, kSwiglu, kColumns>>;
  const Multiplier multiplier(w, warp, lane);
  const float factor = column < p.tokens ? activations.factor(column) : 0.0F;
  // Rows [begin, end) of the block, whose sums begin at `begin`.
  const auto finish = [&](int begin, int end) {
#pragma unroll 1
    for (int r = mine / kColumns; r < end - begin; r += kStreamThreads / kColumns) {
      float result[kParts] = {};
#pragma unroll
      for (int j = 0; j < kStreamWarps; ++j) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          result[part] += w.sums[j * a.sum_stride + (r * kParts + part) * kColumns + column];
        }
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) result[part] *= factor;
      const int row = begin + r;
      float& out = s.out[at + row];
      if constexpr (kSwiglu) {
        out = swiglu(result[0], result[1]);
      } else {
        float extra = s.bias != nullptr ? s.bias[w.begin + row] : 0.0F;
        if (p.residual != nullptr) extra += row == mine / kColumns ? residual : load_fresh(p.residual + at + row);
        out = result[0] + extra;
      }
    }
  };
  int slot = 0;
  int parity = 0;
  int begin = 0;  // of the batch
#pragma unroll 1
  for (int chunk = 0; chunk < w.chunks; ++chunk) {
    const int count = w.chunk_count(chunk);
    const int first = chunk << a.chunk_shift;
    wait_barrier(w.full + slot * 8, parity);
    multiplier.run(w, w.ring + slot * a.slot_bytes, first - begin, count);
    __syncwarp();
    if (lane == 0) arrive(w.empty + slot * 8);
    if (++slot == a.stages) slot = 0, parity ^= 1;
    const int end = first + count;
    const bool last = chunk + 1 == w.chunks;
    if (last || end + w.chunk_count(chunk + 1) - begin > a.batch_rows) {
      sync_first<kStreamThreads>();
      if (column < p.tokens) finish(begin, end);
      if (!last) sync_first<kStreamThreads>();  // the next batch reuses the sums
      begin = end;
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
  with_segment<F, F2, kSwiglu>(
      a, [&]<DType kType, bool kPair>(int segment) { stream_columns<kType, kPair, kColumns>(a, segment, shared); });
#endif
}

}  // namespace inferno::cuda
