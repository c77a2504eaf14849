// The matrix–vector product of one token (compute capability 9.0): weights stream through shared memory.
//
// Each multiprocessor gets one block with an equal share of the rows. A producer warp prefetches the block's weights as
// bulk copies into a ring, chunk by chunk, beginning before the previous kernel has ended: weights depend on nothing,
// so the memory stays busy across kernels, and small matrices arrive whole while earlier kernels still run. Eight
// consumer warps wait for the previous kernel, load the activations into shared memory, and multiply chunk after chunk:
//   quantized weights  a warp has one unit of the row in registers and loops over rows, up to kBatch at a time;
//   16-bit weights     a warp has every eighth block of 32 columns of all rows, as tiles of tensor-core products.
// The partial sums of each row are added in the epilogue, with bias, residual and SwiGLU.
#pragma once

#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/stream_activations.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

namespace inferno::cuda {

inline constexpr int kStreamWarps = 8;  // consumers; one more warp is the producer
inline constexpr int kStreamThreads = kStreamWarps * kWarp;
inline constexpr int kBatch = 4;
inline constexpr int kMaxStages = 16;
// Two kernels share a multiprocessor's memory, and three its registers.
inline constexpr int kRingBytes = 104 * 1024;
inline constexpr int kStreamResident = 3;
inline constexpr int kChunkBytes = 36 * 1024;
inline constexpr int kLeastChunkBytes = 16 * 1024;
inline constexpr int kLongUnits = 4;  // rows of large models: kExclusiveSlot; quantized ones: long_stream.cuh
// Bytes that a block has in flight at most. More would only queue, and delay the previous kernel's stores and this
// one's loads of its results. Kernels that are bound by memory bandwidth need more to saturate it.
inline constexpr int kBytesInFlight = 36 * 1024;
inline constexpr int kMaxBytesInFlight = 72 * 1024;
inline constexpr int kSumBytes = 40 * 1024;
inline constexpr int kBatchSumBytes = 24 * 1024;  // of several tokens; a multiple of a tile's sums
inline constexpr int kMaxStreamBytes = 220 * 1024;

// Computed on the host as far as possible: the kernel performs no division.
struct StreamParams {
  VectorProduct p;
  int units = 0;        // per row
  int row_quantum = 1;  // blocks and chunks begin at multiples of this row
  int chunk_rows = 0;   // rows (SwiGLU: pairs) of a chunk
  int chunk_shift = 0;  // their number is a power of two
  int slot_bytes = 0;   // of the ring; a chunk fits
  int stages = 0;       // slots
  int in_flight = 0;    // chunks requested and not yet arrived, at most
  int sum_bytes = 0;    // space for the rows' sums
  int x_bytes = 0;      // space for the activations
  // `row_parts` warps share a row, each with one unit; in longer rows each has several. Warp w has the unit in digit w
  // of `unit_of_warp` and the row in digit w of `row_of_warp`.
  int row_parts = 1;
  int row_step = 1;  // rows that the warps have at a time
  int batch = 1;     // rows of a chunk that a warp has
  uint32_t unit_of_warp = 0;
  uint32_t row_of_warp = 0;
  int first_block[kMaxSegments + 1] = {};  // of each segment
  int quanta[kMaxSegments] = {};           // of rows that each of its blocks has
  int longer[kMaxSegments] = {};           // blocks, the first ones, that have one more
  // Several tokens (stream_columns.cuh).
  int column_bytes = 0;  // of one token's activations
  int sum_stride = 0;    // floats between the parts of the rows' sums
  int batch_rows = 0;    // rows that are finished together
  int token_shift = 0;   // 2 to the power of this: warps that load a token's activations
};

__host__ __device__ constexpr int round_16(int bytes) {
  return (bytes + 15) / 16 * 16;
}
// Bytes of a chunk in its slot: the planes of `rows` consecutive rows one after another, each as in device memory;
// `pad`: bytes after each row of plane q.
__host__ __device__ constexpr int chunk_space(const RowBytes& b, int rows, int pad = 0) {
  return round_16((b.q + pad) * rows) + round_16(b.h * rows) + round_16(b.s * rows) + round_16(b.d * rows);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Calls stream.operator()<its type, kSwiglu>(segment) for the segment whose rows the block has; its type is F or F2.
template <DType F, DType F2, bool kSwiglu, typename Stream>
__device__ __forceinline__ void with_segment(const StreamParams& a, Stream stream) {
  int segment = 0;
  if constexpr (!kSwiglu) {
    while (segment + 1 < a.p.segments && static_cast<int>(blockIdx.x) >= a.first_block[segment + 1]) ++segment;
  }
  if constexpr (F != F2) {
    if (a.p.segment[segment].dtype == F2) {
      stream.template operator()<F2, false>(segment);
      return;
    }
  }
  stream.template operator()<F, kSwiglu>(segment);
}

// The block's share of the rows, as producer and consumers see it.
template <DType F, bool kSwiglu>
struct StreamShare {
  static constexpr int kParts = kSwiglu ? 2 : 1;
  const StreamParams& a;
  const Segment& s;
  int segment;
  int begin, rows, chunks;  // the block's rows of the segment
  RowBytes bytes;
  // Shared memory: barriers (full, empty), one float per warp, sums, activations, ring.
  uint32_t full, empty, ring;
  float* partial;
  float* sums;
  uint8_t* x;

  __device__ __forceinline__ StreamShare(const StreamParams& params, int which, uint8_t* shared)
      : a(params), s(params.p.segment[which]), segment(which), bytes(row_bytes_of<F>(s.w)) {
    const int block = static_cast<int>(blockIdx.x) - a.first_block[segment];
    const int longer = a.longer[segment];
    begin = (block * a.quanta[segment] + min(block, longer)) * a.row_quantum;
    rows = min((a.quanta[segment] + (block < longer ? 1 : 0)) * a.row_quantum, s.rows - begin);
    chunks = (rows + a.chunk_rows - 1) >> a.chunk_shift;
    full = shared_address(shared);
    empty = full + kMaxStages * 8;
    partial = reinterpret_cast<float*>(shared + 2 * kMaxStages * 8);
    sums = partial + 32;
    x = reinterpret_cast<uint8_t*>(sums) + a.sum_bytes;
    ring = shared_address(x) + a.x_bytes;
  }
  __device__ __forceinline__ int chunk_count(int chunk) const { return min(a.chunk_rows, rows - chunk * a.chunk_rows); }
  // All threads; the producer warp makes the barriers ready. `releases`: of a slot by those who read it.
  __device__ __forceinline__ void open(bool producer, int lane, int releases) const {
    if (producer && lane < kMaxStages) {
      init_barrier(full + lane * 8, 1);
      init_barrier(empty + lane * 8, releases);
      fence_barrier_init();
      fence_async_shared();
    }
    __syncthreads();
  }
};

// The producer warp. kPad: as for chunk_space; if not 0, each row of plane q is a copy of its own.
template <int kPad = 0, DType F, bool kSwiglu>
__device__ __forceinline__ void prefetch_weights(const StreamShare<F, kSwiglu>& w, int lane) {
  constexpr int kParts = StreamShare<F, kSwiglu>::kParts;
  const StreamParams& a = w.a;
  const uint32_t part_space = chunk_space(w.bytes, a.chunk_rows, kPad);
  const uint32_t h_plane = round_16((w.bytes.q + kPad) * a.chunk_rows);
  const uint32_t s_plane = h_plane + round_16(w.bytes.h * a.chunk_rows);
  const uint32_t d_plane = s_plane + round_16(w.bytes.s * a.chunk_rows);
  int slot = 0;
  int parity = 1;
#pragma unroll 1
  for (int chunk = 0; chunk < w.chunks; ++chunk) {
    const int count = w.chunk_count(chunk);
    const int64_t first = w.begin + int64_t{chunk} * a.chunk_rows;
    const auto row = [&](int part) { return global_row<F>(a.p.segment[w.segment + part].w, first); };
    const uint32_t barrier = w.full + slot * 8;
    const uint32_t to = w.ring + slot * a.slot_bytes;
    wait_barrier(w.empty + slot * 8, parity);
    if (chunk >= a.in_flight) {
      const int earlier = slot - a.in_flight;
      wait_barrier(w.full + (earlier < 0 ? earlier + a.stages : earlier) * 8, earlier < 0 ? parity : parity ^ 1);
    }
    const RowBytes sizes = {round_16(w.bytes.q * count), round_16(w.bytes.h * count), round_16(w.bytes.s * count),
                            round_16(w.bytes.d * count)};
    const bool one = elect_one();
    if (one) arrive_expecting(barrier, kParts * (sizes.q + sizes.h + sizes.s + sizes.d));
    if constexpr (kPad != 0) {  // many copies: the next kernel need not wait for them
      if (chunk == 0) let_next_start();
      __syncwarp();
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint8_t* q = row(part).q;
        for (int r = lane; r < count && w.bytes.q != 0; r += kWarp) {
          copy_bytes(to + part * part_space + r * (w.bytes.q + kPad), q + int64_t{r} * w.bytes.q, w.bytes.q, barrier);
        }
      }
    }
    if (one) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        constexpr bool kPlain = group_bytes(F).s == 0;
        const GlobalRow from = row(part);
        const uint32_t at = to + part * part_space;
        if constexpr (kPad == 0 && (kPlain || group_bytes(F).q != 0)) copy_bytes(at, from.q, sizes.q, barrier);
        if constexpr (group_bytes(F).h != 0) copy_bytes(at + h_plane, from.h, sizes.h, barrier);
        if constexpr (group_bytes(F).s != 0) copy_bytes(at + s_plane, from.s, sizes.s, barrier);
        if constexpr (group_bytes(F).d != 0) copy_bytes(at + d_plane, from.d, sizes.d, barrier);
      }
    }
    if (kPad == 0 && chunk == 0) let_next_start();
    if (++slot == a.stages) slot = 0, parity ^= 1;
  }
}

// Sums of four values over the warp: lane l gets that of value l / 8.
__device__ __forceinline__ float warp_sum_4(const float* v, int lane) {
  const bool high = (lane & 16) != 0;
  float a = high ? v[2] : v[0];
  float b = high ? v[3] : v[1];
  a += __shfl_xor_sync(kFullMask, high ? v[0] : v[2], 16);
  b += __shfl_xor_sync(kFullMask, high ? v[1] : v[3], 16);
  const bool odd = (lane & 8) != 0;
  const float other = __shfl_xor_sync(kFullMask, odd ? a : b, 8);
  a = (odd ? b : a) + other;
#pragma unroll
  for (int step = 4; step > 0; step /= 2) a += __shfl_xor_sync(kFullMask, a, step);
  return a;
}

// Of two values: lane l gets that of value l / 16.
__device__ __forceinline__ float warp_sum_2(const float* v, int lane) {
  const bool high = (lane & 16) != 0;
  float a = (high ? v[1] : v[0]) + __shfl_xor_sync(kFullMask, high ? v[0] : v[1], 16);
#pragma unroll
  for (int step = 8; step > 0; step /= 2) a += __shfl_xor_sync(kFullMask, a, step);
  return a;
}

// Quantized rows of a chunk. Part j of row r's sum goes to sums[r * row_parts + j]; SwiGLU rows are gate and up in
// turn.
template <DType F, bool kSwiglu>
struct RowMultiplier {
  static constexpr int kParts = kSwiglu ? 2 : 1;
  int lane, unit, row;

  __device__ __forceinline__ RowMultiplier(const StreamShare<F, kSwiglu>& w, int warp, int lane_)
      : lane(lane_),
        unit(static_cast<int>(w.a.unit_of_warp >> (4 * warp) & 15U)),
        row(static_cast<int>(w.a.row_of_warp >> (4 * warp) & 15U)) {}

  // Long rows of 8 bits: a chunk has fewer rows than a batch. Elsewhere the test would cost registers and save nothing.
  static __device__ __forceinline__ bool skips(const StreamShare<F, kSwiglu>& w, int i) {
    return F == DType::q8_0 && i >= w.a.batch;
  }

  __device__ __forceinline__ void run(const StreamShare<F, kSwiglu>& w, uint32_t slot, int count, float* sums) const {
    const int row_step = w.a.row_step;
    if (row >= row_step) return;
    const int part_space = chunk_space(w.bytes, w.a.chunk_rows);
    SharedRow base;
    base.q = slot;
    base.h = base.q + round_16(w.bytes.q * w.a.chunk_rows);
    base.s = base.h + round_16(w.bytes.h * w.a.chunk_rows);
    base.d = base.s + round_16(w.bytes.s * w.a.chunk_rows);
#pragma unroll 1
    for (int first = row; first < count; first += row_step * (kBatch / kParts)) {
      float acc[kBatch] = {};
#pragma unroll 1
      for (int u = unit; u < w.a.units; u += kStreamWarps) {
        const auto x = Part<F>::activations(w.x, w.a.units * 32, u, lane);
        Part<F> part[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (skips(w, i)) continue;
          // Rows after the last repeat it: their sums are discarded.
          const int r = min(first + i / kParts * row_step, count - 1);
          const uint32_t skip = i % kParts * part_space;
          const SharedRow at{base.q + skip + r * w.bytes.q, base.h + skip + r * w.bytes.h,
                             base.s + skip + r * w.bytes.s, base.d + skip + r * w.bytes.d};
          part[i].load(at, w.bytes, u, lane);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          if (!skips(w, i)) acc[i] = part[i].multiply(x, acc[i]);
        }
      }
      const float sum = warp_sum_4(acc, lane);
      const int i = lane / 8;
      const int r = first + i / kParts * row_step;
      if (lane % 8 == 0 && r < count) sums[(r * kParts + i % kParts) * w.a.row_parts + unit] = sum;
    }
  }
};

// Tiles of 16-bit rows: 16 rows, or 8 pairs with the gates in the upper half. A dot product does not depend on
// the order of its terms, so a lane has 16 contiguous bytes of its rows as its part of two products. Adjacent rows are
// in the same banks, so odd ones use blocks of 64 bytes in another order, and so do the values they are multiplied
// with: the second operand's column 0 has the values for even rows, column 1 those for odd ones (f16: 2 and 3 the
// residuals).
template <DType F, bool kSwiglu>
struct TileMultiplier {
  static constexpr int kParts = kSwiglu ? 2 : 1;
  static constexpr int kTileRows = kSwiglu ? 8 : 16;
  using T = std::conditional_t<F == DType::f16, __half, __nv_bfloat16>;
  int lane, warp, blocks;
  uint32_t x;  // this lane's operand

  __device__ __forceinline__ TileMultiplier(const StreamShare<F, kSwiglu>& w, int warp_, int lane_)
      : lane(lane_), warp(warp_), blocks(w.a.p.k / 32) {
    const int residual_offset = F == DType::f16 ? lane / 8 % 2 * w.a.units * kUnit * 2 : 0;
    x = shared_address(w.x) + residual_offset + lane % 4 * 16;
  }

  __device__ __forceinline__ void run(const StreamShare<F, kSwiglu>& w, uint32_t slot, int count, float* sums) const {
    const int g = lane / 4;
    const int odd_row = g % 2;
#pragma unroll 1
    for (int first = 0; first < count; first += kTileRows) {
      const int upper = min(first + g, count - 1);
      const int lower = kSwiglu ? upper : min(first + g + 8, count - 1);
      const uint32_t a = slot + upper * w.bytes.q + lane % 4 * 16;
      const uint32_t b =
          slot + (kSwiglu ? chunk_space(w.bytes, w.a.chunk_rows) : 0) + lower * w.bytes.q + lane % 4 * 16;
      float even[4] = {};
      float odd[4] = {};
#pragma unroll 4
      for (int block = warp; block < blocks; block += kStreamWarps) {
        const int at = (block ^ odd_row) * 64;
        const uint4 values = load_shared_16(x + at);
        const uint4 above = load_shared_16(a + at);
        const uint4 below = load_shared_16(b + at);
        mma<T>(even, above.x, below.x, above.y, below.y, values.x, values.y);
        mma<T>(odd, above.z, below.z, above.w, below.w, values.z, values.w);
      }
      float high = odd_row == 0 ? even[0] + odd[0] : even[1] + odd[1];
      float low = odd_row == 0 ? even[2] + odd[2] : even[3] + odd[3];
      if constexpr (F == DType::f16) {
        high = fmaf(__shfl_down_sync(kFullMask, high, 1), 1.0F / kResidualScale, high);
        low = fmaf(__shfl_down_sync(kFullMask, low, 1), 1.0F / kResidualScale, low);
      }
      if (lane % 4 != 0) continue;
      if (first + g < count) sums[(first + g) * kParts * kStreamWarps + warp] = high;
      if constexpr (kSwiglu) {
        if (first + g < count) sums[((first + g) * 2 + 1) * kStreamWarps + warp] = low;
      } else {
        if (first + g + 8 < count) sums[(first + g + 8) * kStreamWarps + warp] = low;
      }
    }
  }
};

// The block's row r: its sum, for SwiGLU those of gate and up, and what is added to it. `residual` has been loaded if
// `loaded`.
template <bool kSwiglu, DType F>
__device__ __forceinline__ void store_stream_result(const StreamShare<F, kSwiglu>& w, int r, const float* sums,
                                                    bool loaded, float residual) {
  const Segment& s = w.s;
  float& out = s.out[w.begin + r];
  if constexpr (kSwiglu) {
    out = swiglu(sums[0], sums[1]);
  } else {
    const float* residuals = w.a.p.residual;
    float extra = s.bias != nullptr ? s.bias[w.begin + r] : 0.0F;
    if (residuals != nullptr) extra += loaded ? residual : load_fresh(residuals + w.begin + r);
    out = sums[0] + extra;
  }
}

template <DType F, bool kSwiglu>
__device__ __forceinline__ void stream_rows(const StreamParams& a, int segment, uint8_t* shared) {
  constexpr int kParts = kSwiglu ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const StreamShare<F, kSwiglu> w(a, segment, shared);
  w.open(warp == kStreamWarps, lane, kStreamWarps);
  if (warp == kStreamWarps) {
    prefetch_weights(w, lane);
    return;
  }
  const VectorProduct& p = a.p;
  StreamActivations<F, kStreamThreads> activations(p, a.units, w.x, w.partial);
  wait_for_previous();

  // The residual of the thread's first row: loaded here, used in the epilogue.
  const int mine = static_cast<int>(threadIdx.x);
  const bool adds = p.residual != nullptr && mine < w.rows;
  activations.prefetch();
  const float residual = adds ? load_fresh(p.residual + w.begin + mine) : 0.0F;
  activations.run();

  using Multiplier = std::conditional_t<on_tensor_cores(F), TileMultiplier<F, kSwiglu>, RowMultiplier<F, kSwiglu>>;
  const Multiplier multiplier(w, warp, lane);
  int slot = 0;
  int parity = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < w.chunks; ++chunk) {
    wait_barrier(w.full + slot * 8, parity);
    multiplier.run(w, w.ring + slot * a.slot_bytes, w.chunk_count(chunk),
                   w.sums + (chunk << a.chunk_shift) * kParts * a.row_parts);
    __syncwarp();
    if (lane == 0) arrive(w.empty + slot * 8);
    if (++slot == a.stages) slot = 0, parity ^= 1;
  }
  const float factor = activations.factor();
  sync_first<kStreamThreads>();
#pragma unroll 1
  for (int r = mine; r < w.rows; r += kStreamThreads) {
    float result[kParts] = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const float* terms = w.sums + (r * kParts + part) * a.row_parts;
      if constexpr (on_tensor_cores(F)) {  // one of each warp
        const float4 low = *reinterpret_cast<const float4*>(terms);
        const float4 high = *reinterpret_cast<const float4*>(terms + 4);
        result[part] = ((low.x + low.y) + (low.z + low.w)) + ((high.x + high.y) + (high.z + high.w));
      } else {
#pragma unroll 1
        for (int j = 0; j < a.row_parts; ++j) result[part] += terms[j];
      }
      result[part] *= factor;
    }
    store_stream_result<kSwiglu>(w, r, result, r == mine, residual);
  }
}

#endif

// Segments are of type F or F2.
template <DType F, DType F2, bool kSwiglu>
__global__ void __launch_bounds__(kStreamThreads + kWarp, kStreamResident)
    vector_stream_kernel(const __grid_constant__ StreamParams a) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  with_segment<F, F2, kSwiglu>(
      a, [&]<DType kType, bool kPair>(int segment) { stream_rows<kType, kPair>(a, segment, shared); });
#endif
}

}  // namespace inferno::cuda
