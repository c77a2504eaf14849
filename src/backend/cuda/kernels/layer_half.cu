// The kernels of layer_half.cuh, and their launches.
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/layer_attention.cuh"
#include "backend/cuda/kernels/layer_products.cuh"
#include "backend/cuda/kernels/tensor_map.cuh"

namespace inferno::cuda {
namespace {

constexpr float kLog2e = 1.4426950408889634F;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Each block multiplies 16 rows of q, k and v each: row / 16, and row % 16 of the head's rows that are its own.
template <typename Block>
__device__ __forceinline__ void project_heads(const Block& b) {
  using At = typename Block::At;
  constexpr int kTokens = Block::kTokens;
  const auto index_of = [&](int row) { return row / 16 * kLayerHeadDim + b.rank * 16 + row % 16; };
  if constexpr (At::kQuantTiles) {
    b.multiply_quantized();
    if (b.thread < At::kRows * kTokens) {
      const int token = b.thread % kTokens;
      b.send_quads(token, index_of(b.thread / kTokens), b.sliced_result(b.thread) * b.factor(token));
    }
  } else if constexpr (kTokens > 1 && At::kTiles) {
    const auto factors = b.factors();
    b.multiply_16_bit();
#pragma unroll 1
    for (int i = b.thread / 4; i < At::kRows / 2 * kTokens; i += kLayerThreads / 4) {
      const int token = i / (At::kRows / 2);
      const int row = i % (At::kRows / 2) * 2;
      const float factor = factors.of(token);
      b.send_results(token, index_of(row),
                     make_float2(b.result(token, row) * factor, b.result(token, row + 1) * factor));
    }
  } else if constexpr (At::kTiles) {
    const float factor = b.factor(0);
    b.multiply_16_bit();
    if (b.thread < 4 * At::kRows) b.send_results(0, index_of(b.thread / 4), b.result(0, b.thread / 4) * factor);
  } else {
    const int i = b.lane / 4;
    const auto row_of = [&](int n) { return n / 2 * 16 + b.warp * 2 + n % 2; };
    float result[kTokens];
    if constexpr (kTokens == 1) {
      const float factor = b.factor(0);
      b.multiply_rows(result, row_of);
      if (i < 6) b.send_results(0, index_of(row_of(i)), result[0] * factor);
    } else {
      // Of two adjacent rows even lanes send both of the first token, odd ones of the second.
      const bool odd = i % 2 != 0;
      const float factor = b.factor(i % 2);
      b.multiply_rows(result, row_of);
      const float other = __shfl_xor_sync(kFullMask, odd ? result[0] : result[1], 4);
      const float2 both =
          odd ? make_float2(other * factor, result[1] * factor) : make_float2(result[0] * factor, other * factor);
      if (i < 6) b.send_results(i % 2, index_of(row_of(i / 2 * 2)), both);
    }
  }
}

template <DType F, DType F2, int kTokens, typename T>
__device__ __forceinline__ void attention_half(const AttentionParams& p, uint8_t* shared) {
  using Block = HalfProducts<F, F2, true, kTokens>;
  using At = typename Block::At;
  constexpr int kTokenWarps = Block::kTokenWarps;
  constexpr int kNearBuffers = kTokens == 1 ? 1 : 2;
  constexpr bool kBothNear = kTokens == 2;  // registers allow to load both before the wait
  let_next_start();
  const Block b(p.half, shared);
  // Loads of the cache and of the rotation wait for these. A token that does not exist has no positions.
  const bool exists = kTokens < 4 || b.token < p.half.stream.tokens;
  const int cached = exists ? __ldcg(p.batch.pos + b.token) : 0;
  const int sequence = exists ? __ldcg(p.batch.seq_of_token + b.token) : 0;
  constexpr bool kSlotEarly = kTokens <= 2;  // where registers allow it
  const int own_slot = exists && kSlotEarly ? __ldcg(p.batch.slot + b.token) : -1;
  bool any_far = false;
  if constexpr (At::kTight) {
    for (int t = 0; t < p.half.stream.tokens; ++t) any_far = any_far || __ldcg(p.batch.pos + t) > kNearPositions;
  }
  const int lane = b.lane;
  const int warp = b.warp;
  const int kv_head = b.cluster / (kLayerHeads / kLayerKvHeads);
  const int rows = kLayerHeadDim / kLayerBlocks;
  b.open(b.cluster * kLayerHeadDim + b.rank * rows, kv_head * kLayerHeadDim + b.rank * rows);
  // ---- what depends on no other kernel: norms, rotation, the first tile of the cache
  const float4 norm = b.norm_weights();
  if (b.thread < 2 * kWarp) {
    const float* from = warp == 0 ? p.norms.q : p.norms.k;
    *reinterpret_cast<float4*>(shared + At::kHeads + b.thread * 16) = *reinterpret_cast<const float4*>(from + lane * 4);
  }
  const HeadCache cache{p.kv, p.batch.block_table + int64_t{sequence} * p.batch.max_pages, kv_head, p.page_shift,
                        cached};
  const int index = b.rank * kTokenWarps + b.share;
  const int piece = lane % 8;
  NearTile near[kNearBuffers] = {};
  const auto near_at = [&](int i) { return index * kNearTile + i * near_span(kTokens); };
  const int near_page = cache.page_of(near_at(kTokens == 1 ? 0 : lane % kTokens));  // of tile l % kTokens
  const auto load_near = [&](NearTile& to, int i) {
    const int page = kTokens == 1 ? near_page : __shfl_sync(kFullMask, near_page, i);
    to.template load<T>(cache, page, near_at(i), lane);
  };
  load_near(near[0], 0);
  if constexpr (kBothNear) load_near(near[1], 1);
  FarTiles<T, kTokenWarps> far(p, cache, b.base + At::kFar + warp * At::kFarBytes, b.barrier(At::kFarFull + 2 * warp),
                               b.rank, b.share, lane);
  constexpr int kTurns = At::kSharedTurns ? 1 : 4;  // with the former, each of a token's warps has all of them
  float4 rotation[kTurns];                          // (cos, sin) of two elements each
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    rotation[i] =
        load_fresh4(p.rope + int64_t{cached} * kLayerHeadDim + (At::kSharedTurns ? lane * 4 : piece * 16) + i * 4);
  }
  wait_cluster();  // the other blocks' barriers are ready
  wait_for_previous();

  // ---- q, k and v
  b.exchange_row(norm);
  const int turns = At::kTurns + b.token * At::kHeadBytes;
  if (At::kSharedTurns && b.share == 0) *reinterpret_cast<float4*>(shared + turns + lane * 16) = rotation[0];
  project_heads(b);
  if constexpr (kTokens > 1 && !kBothNear) load_near(near[1], 1);
  __syncwarp();
  wait_received(b.barrier(At::kResults), 0);  // so all warps have read the first weights
  if (cached > kNearPositions) far.open();

  // ---- the head's norm and rotation; one warp of the token's in the cluster also has its own key and value
  const bool own = b.rank == kLayerBlocks - 1 && b.share == kTokenWarps - 1;
  HeadPart<T> part;
  uint4 own_key[2] = {};
  uint2 own_value = {};
  float q[16];
  const uint32_t received = b.base + At::kReceived + b.token * At::kReceivedBytes;
#pragma unroll 1
  for (int h = own ? 1 : 0;; --h) {  // the key first
    const uint32_t from = received + h * At::kHeadBytes + piece * 32;
    const uint32_t weights = b.base + At::kHeads + h * At::kHeadBytes + piece * 32;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 v = load_shared_float4(from + i / 2 * 256 + i % 2 * 16);
      q[i * 4] = v.x, q[i * 4 + 1] = v.y, q[i * 4 + 2] = v.z, q[i * 4 + 3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) squares = fmaf(q[i], q[i], squares);
#pragma unroll
    for (int step = 1; step < 8; step *= 2) squares += __shfl_xor_sync(kFullMask, squares, step);
    const float scale = rsqrtf(squares * (1.0F / kLayerHeadDim) + p.norms.eps) * (h == 0 ? p.scale * kLog2e : 1.0F);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const float4 turn = At::kSharedTurns ? load_shared_float4(b.base + turns + piece * 64 + i * 8)
                                           : rotation[At::kSharedTurns ? 0 : i / 2];
      const float2 near = load_shared_float2(weights + i * 4);
      const float2 far = load_shared_float2(weights + 256 + i * 4);
      const float2 x = make_float2(q[i] * scale * near.x, q[i + 1] * scale * near.y);
      const float2 y = make_float2(q[i + 8] * scale * far.x, q[i + 9] * scale * far.y);
      q[i] = x.x * turn.x - y.x * turn.y;
      q[i + 8] = x.x * turn.y + y.x * turn.x;
      q[i + 1] = x.y * turn.z - y.y * turn.w;
      q[i + 9] = x.y * turn.w + y.y * turn.z;
    }
    if (h == 0) break;
    own_key[0] = make_uint4(pack_pair<T>(q[0], q[1]), pack_pair<T>(q[2], q[3]), pack_pair<T>(q[4], q[5]),
                            pack_pair<T>(q[6], q[7]));
    own_key[1] = make_uint4(pack_pair<T>(q[8], q[9]), pack_pair<T>(q[10], q[11]), pack_pair<T>(q[12], q[13]),
                            pack_pair<T>(q[14], q[15]));
    const float4 v = load_shared_float4(received + 2 * At::kHeadBytes + lane * 16);
    own_value = make_uint2(pack_pair<T>(v.x, v.y), pack_pair<T>(v.z, v.w));
    const int slot = kSlotEarly ? own_slot : exists ? __ldcg(p.batch.slot + b.token) : -1;
    if (b.cluster % (kLayerHeads / kLayerKvHeads) == 0 && slot >= 0) {
      const int64_t row = cache.row(slot >> p.page_shift, slot & (p.kv.page_size - 1));
      T* key = static_cast<T*>(p.kv.k) + row + piece * 8;
      if (lane < 8) {
        *reinterpret_cast<uint4*>(key) = own_key[0];
        *reinterpret_cast<uint4*>(key + 64) = own_key[1];
      }
      *reinterpret_cast<uint2*>(static_cast<T*>(p.kv.v) + row + lane * 4) = own_value;
    }
  }

  // ---- attention
  if (own) part.start(q, own_key, own_value);
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    if (near_at(i) < cached) part.add(q, near[i % kNearBuffers], cached - near_at(i), lane);
    if (i + kNearBuffers < kTokens) load_near(near[i % kNearBuffers], i + kNearBuffers);
  }
  if (cached > kNearPositions) far.add_to(part, q, shared + At::kWarpPart + warp * At::kHeadBytes);
  if (At::kTight && any_far) arrive_cluster();  // parts may take the place of this block's tiles
  *reinterpret_cast<float4*>(shared + At::kWarpPart + warp * At::kHeadBytes + lane * 16) = part.value;
  if (lane == 0) *reinterpret_cast<float2*>(shared + At::kWarpSums + warp * 8) = make_float2(part.high, part.sum);
  __syncthreads();
  {  // each warp adds all parts of its token's warps, for the blocks it sends to
    // Registers that hold these from the exchange of rows on would be spilled, so some kernels compute them anew.
    constexpr bool kAnew = kTokens == 4 || At::kQuantTiles;
    int lane = b.lane;
    int token = b.token;
    int share = b.share;
    if constexpr (kAnew) {
      const int thread = thread_anew();
      lane = thread % kWarp;
      token = thread / kWarp / kTokenWarps;
      share = thread / kWarp % kTokenWarps;
    }
    const int from = token * kTokenWarps;
    const HeadShares<kTokenWarps> warps(b.base + At::kWarpSums + from * 8);
    float sum = 0;
    float4 value = {};
#pragma unroll
    for (int i = 0; i < kTokenWarps; ++i) {
      const float weight = warps.share(i);
      sum = fmaf(weight, warps.part[i].y, sum);
      value = fma4(weight, load_shared_float4(b.base + At::kWarpPart + (from + i) * At::kHeadBytes + lane * 16), value);
    }
    const int slot = token * kLayerBlocks + b.rank;
    if (At::kTight && any_far) wait_cluster();
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int to = share + i * kTokenWarps;
      const uint32_t there = kAnew ? address_anew_in(b.base, to) : address_in(b.base, to);
      const uint32_t full = there + At::kParts * 8;
      send(there + At::kPart + slot * At::kHeadBytes + lane * 16, value, full);
      if (lane == 0) send(there + At::kPartSums + slot * 8, make_float2(warps.high, sum), full);
    }
  }
  __syncwarp();
  wait_received(b.barrier(At::kParts), 0);
  if constexpr (At::kQuantTiles) {
    if (warp < kTokens) {
      const HeadShares<kLayerBlocks> blocks(b.base + At::kPartSums + warp * kLayerBlocks * 8);
      float sum = 0;
      float4 value = {};
#pragma unroll
      for (int n = 0; n < kLayerBlocks; ++n) {
        const float share = blocks.share(n);
        sum = fmaf(share, blocks.part[n].y, sum);
        value =
            fma4(share, load_shared_float4(b.base + At::kPart + warp * At::kPartBytes + n * At::kHeadBytes + lane * 16),
                 value);
      }
      const auto scaled = [&](float v) { return __fdividef(v, sum); };
      b.put_slice(warp, 0, make_float4(scaled(value.x), scaled(value.y), scaled(value.z), scaled(value.w)));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kTokens * kLayerHeadDim; i += kLayerThreads) {
      const int token = (i + b.thread) / kLayerHeadDim;
      const int column = b.thread % kLayerHeadDim;
      if (token >= kTokens) break;
      const HeadShares<kLayerBlocks> blocks(b.base + At::kPartSums + token * kLayerBlocks * 8);
      float sum = 0;
      float value = 0;
#pragma unroll
      for (int n = 0; n < kLayerBlocks; ++n) {
        const float share = blocks.share(n);
        sum = fmaf(share, blocks.part[n].y, sum);
        value = fmaf(share,
                     load_shared_float(b.base + At::kPart + token * At::kPartBytes + n * At::kHeadBytes + column * 4),
                     value);
      }
      b.put_middle(token, column, __fdividef(value, sum));
    }
  }
  __syncthreads();
  b.multiply_second();
}

// Each block multiplies kRows / 2 rows of gate and of up: quantized ones in this order, 16-bit ones four of each in
// turn.
template <typename Block>
__device__ __forceinline__ void project_middle(const Block& b) {
  using At = typename Block::At;
  constexpr int kTokens = Block::kTokens;
  constexpr int kPairs = At::kRows / 2;
  constexpr int kWarpPairs = kPairs / kLayerWarps;
  const int index = b.rank * kPairs;
  const auto gate_row = [](int pair) { return pair / (kPieceRows / 2) * kPieceRows + pair % (kPieceRows / 2); };
  if constexpr (At::kQuantTiles) {
    b.multiply_quantized();
    if (b.thread < kPairs * kTokens) {
      const int token = b.thread % kTokens;
      const float factor = b.factor(token);
      const float2 both = b.sliced_result(b.thread);
      b.send_quads(token, index + b.thread / kTokens, swiglu(both.x * factor, both.y * factor));
    }
  } else if constexpr (kTokens > 1 && At::kTiles) {
    const auto factors = b.factors();
    b.multiply_16_bit();
    const int pairs = b.columns() / kLayerBlocks;
#pragma unroll 1
    for (int i = b.thread / 4; i < pairs / 2 * kTokens; i += kLayerThreads / 4) {
      const int token = i / (pairs / 2);
      const int pair = i % (pairs / 2) * 2;
      const float factor = factors.of(token);
      const auto at = [&](int n) {
        const int row = gate_row(pair) + n;
        return swiglu(b.result(token, row) * factor, b.result(token, row + kPieceRows / 2) * factor);
      };
      b.send_results(token, b.rank * pairs + pair, make_float2(at(0), at(1)));
    }
  } else if constexpr (At::kTiles) {
    const float factor = b.factor(0);
    b.multiply_16_bit();
    const int pair = b.thread / 4;
    if (pair < b.columns() / kLayerBlocks) {
      const int row = gate_row(pair);
      const float gate = b.result(0, row) * factor;
      b.send_results(0, b.rank * (b.columns() / kLayerBlocks) + pair,
                     swiglu(gate, b.result(0, row + kPieceRows / 2) * factor));
    }
  } else {
    const auto row_of = [&](int i) { return i / kWarpPairs * kPairs + b.warp * kWarpPairs + i % kWarpPairs; };
    float result[kTokens];
    if constexpr (kTokens == 1) {
      const float factor = b.factor(0);
      b.multiply_rows(result, row_of);
      const float up = __shfl_down_sync(kFullMask, result[0], 4 * kWarpPairs);
      if (b.lane < 4 * kWarpPairs) {
        b.send_results(0, index + b.warp * kWarpPairs + b.lane / 4, swiglu(result[0] * factor, up * factor));
      }
    } else {
      // The lower lanes finish the first token, the upper ones the second; of two adjacent pairs, even lanes send both
      // to the first four blocks, odd ones to the others.
      static_assert(kWarpPairs == 4);
      const bool upper = b.lane >= 16;
      const int pair = b.lane / 4 % 4;
      const bool odd = pair % 2 != 0;
      const float factor = b.factor(upper ? 1 : 0);
      b.multiply_rows(result, row_of);
      const float other = __shfl_xor_sync(kFullMask, upper ? result[0] : result[1], 16);
      const float mine = swiglu((upper ? other : result[0]) * factor, (upper ? result[1] : other) * factor);
      const float next = __shfl_xor_sync(kFullMask, mine, 4);
      b.send_result(b.lane % 4 + (odd ? 4 : 0), upper ? 1 : 0, index + b.warp * kWarpPairs + pair / 2 * 2,
                    odd ? make_float2(next, mine) : make_float2(mine, next));
    }
  }
}

template <DType F, DType F2, int kTokens>
__device__ __forceinline__ void mlp_half(const HalfParams& p, uint8_t* shared) {
  using Block = HalfProducts<F, F2, false, kTokens>;
  using At = typename Block::At;
  let_next_start();
  const Block b(p, shared);
  const int row = b.cluster * At::kColumns + b.rank * (b.columns() / kLayerBlocks);
  b.open(row, row);
  const float4 norm = b.norm_weights();
  wait_cluster();  // the other blocks' barriers are ready
  typename Block::Held held;
  if constexpr (At::kHeld) b.hold_second(held, row);
  wait_for_previous();
  b.exchange_row(norm);
  project_middle(b);
  __syncwarp();
  wait_received(b.barrier(At::kResults), 0);
  if constexpr (At::kQuantTiles) {
    constexpr int kSlices = At::kColumns / kSliceColumns;
    if (b.warp < kTokens * kSlices) {
      const float4 v = load_shared_float4(b.base + At::kReceived + b.warp * kSliceColumns * 4 + b.lane * 16);
      b.put_slice(b.warp / kSlices, b.warp % kSlices, v);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kTokens * At::kColumns; i += kLayerThreads) {
      const int at = i + b.thread;
      if (at < kTokens * At::kColumns) {
        // Columns that the last cluster does not have are zero.
        const bool exists = At::kLastColumns == At::kColumns || at % At::kColumns < b.columns();
        const float v = exists ? load_shared_float(b.base + At::kReceived + at * 4) : 0.0F;
        b.put_middle(at / At::kColumns, at % At::kColumns, v);
      }
    }
  }
  __syncthreads();
  if constexpr (At::kHeld) {
    b.multiply_held(held);
  } else {
    b.multiply_second();
  }
}

#endif

// Two kernels share a multiprocessor.
template <DType F, DType F2, int kTokens, typename T>
__global__ void __launch_bounds__(kLayerThreads, 2) attention_half_kernel(const __grid_constant__ AttentionParams p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t shared[];
  attention_half<F, F2, kTokens, T>(p, shared);
#endif
}
template <DType F, DType F2, int kTokens>
__global__ void __launch_bounds__(kLayerThreads, 2) mlp_half_kernel(const __grid_constant__ HalfParams p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) uint8_t shared[];
  mlp_half<F, F2, kTokens>(p, shared);
#endif
}

__global__ void layer_sum_kernel(LayerStream s, int stride, float* out) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float part[kMaxLayerClusters];
#pragma unroll
  for (int c = 0; c < kMaxLayerClusters; ++c) part[c] = c < s.count ? load_fresh(s.parts + c * stride + i) : 0.0F;
  float sum = load_fresh(s.row + i);
#pragma unroll
  for (int c = 0; c < kMaxLayerClusters; ++c) sum += part[c];
  out[i] = sum;
}

// ---- launches

// Rows of `bytes` as pairs of bytes, in boxes of `columns` bytes and a quarter's rows.
bool map_rows(CUtensorMap* map, void* data, int bytes, int columns,
              CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(bytes / 2), kLayerWidth};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(columns / 2), kQuarterRows};
  const cuuint32_t steps[2] = {1, 1};
  return encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, data, sizes, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
CUtensorMapSwizzle swizzle_of(uint32_t bits) {
  return bits == 0 ? CU_TENSOR_MAP_SWIZZLE_NONE : bits == 0x30 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
}
template <typename At>
bool map_second(HalfParams& p) {
  constexpr RowBytes kRow = row_space(At::kSecond, At::kSecondWidth / kGroup);
  if (!map_rows(&p.maps.q, p.second.q, kRow.q, At::kBox, swizzle_of(At::kSwizzle))) return false;
  if (At::kSlice.h != 0 && !map_rows(&p.maps.h, p.second.h, kRow.h, At::kSlice.h, swizzle_of(At::kHighSwizzle))) {
    return false;
  }
  return At::kScaleBytes == 0 || map_rows(&p.maps.s, p.second.s, kRow.s, At::kScaleBytes);
}

// Calls visit.template operator()<F, F2>(); false: no kernel for these types.
template <typename Visit>
bool with_layer_types(DType most, DType other, Visit visit) {
  const auto is = [&](DType a, DType b) { return most == a && other == b; };
  if (is(DType::bf16, DType::bf16)) return visit.template operator()<DType::bf16, DType::bf16>();
  if (is(DType::q8_0, DType::q8_0)) return visit.template operator()<DType::q8_0, DType::q8_0>();
  if (is(DType::q4_0, DType::q4_0)) return visit.template operator()<DType::q4_0, DType::q4_0>();
  if (is(DType::q4_k, DType::q4_k)) return visit.template operator()<DType::q4_k, DType::q4_k>();
  if (is(DType::q4_k, DType::q6_k)) return visit.template operator()<DType::q4_k, DType::q6_k>();
  return false;
}

// Calls visit.template operator()<kTokens>() with the number of tokens that the kernel has.
template <typename Visit>
auto with_layer_tokens(int tokens, Visit visit) {
  if (tokens == 1) return visit.template operator()<1>();
  if (tokens == 2) return visit.template operator()<2>();
  return visit.template operator()<4>();
}

// A block of each half fits on a multiprocessor, where the MLP's is too large for two.
template <DType F, DType F2, int kTokens>
constexpr bool both_halves_fit() {
  constexpr int kOfEach = 1024;  // by the hardware
  constexpr int kAll = 228 * 1024;
  return HalfLayout<F, F2, true, kTokens>::kReserved + HalfLayout<F, F2, false, kTokens>::kReserved + 2 * kOfEach <=
         kAll;
}
static_assert(both_halves_fit<DType::bf16, DType::bf16, 1>() && both_halves_fit<DType::bf16, DType::bf16, 2>());
static_assert(both_halves_fit<DType::q8_0, DType::q8_0, 2>() && both_halves_fit<DType::q8_0, DType::q8_0, 4>());
static_assert(both_halves_fit<DType::q4_0, DType::q4_0, 2>() && both_halves_fit<DType::q4_0, DType::q4_0, 4>());
static_assert(both_halves_fit<DType::q4_k, DType::q6_k, 2>() && both_halves_fit<DType::q4_k, DType::q6_k, 4>());

template <typename At>
LaunchShape half_shape() {
  return {dim3(At::kClusters * kLayerBlocks), dim3(kLayerThreads), At::kReserved, kLayerBlocks};
}

}  // namespace

bool layer_types_fit(DType most, DType other) {
  return with_layer_types(most, other, [&]<DType F, DType F2>() { return has_kernels(F) && has_kernels(F2); });
}

int mlp_clusters(DType gate, int tokens) {
  return with_layer_tokens(tokens, [&]<int kTokens>() {
    return gate == DType::bf16 ? HalfLayout<DType::bf16, DType::bf16, false, kTokens>::kClusters
                               : HalfLayout<DType::q8_0, DType::q8_0, false, kTokens>::kClusters;
  });
}

bool layer_halves_fit(const LaunchContext& c) {
  return c.hopper && encode_tiled() != nullptr;
}

bool layer_cache_fits(const KvLayerView& kv) {
  return maps_cache(kv);
}

bool launch_attention_half(const LaunchContext& c, const AttentionHalf& t) {
  AttentionParams p{
      .half = {.stream = t.stream, .norm = t.norm, .eps = t.norms.eps, .first = {t.q.w, t.k.w, t.v.w}, .second = t.o.w},
      .norms = t.norms,
      .rope = t.rope,
      .kv = t.kv,
      .batch = t.batch,
      .scale = t.scale};
  while (1 << p.page_shift < t.kv.page_size) ++p.page_shift;
  if (!map_cache(t.kv, kTile, &p.k, &p.v)) return false;
  return with_layer_types(t.q.dtype, t.v.dtype, [&]<DType F, DType F2>() {
    return with_layer_tokens(t.stream.tokens, [&]<int kTokens>() {
      using At = HalfLayout<F, F2, true, kTokens>;
      if (!map_second<At>(p.half)) return false;
      const LaunchShape shape = half_shape<At>();
      if (t.kv.dtype == DType::bf16) {
        launch(c, shape, attention_half_kernel<F, F2, kTokens, __nv_bfloat16>, p);
      } else {
        launch(c, shape, attention_half_kernel<F, F2, kTokens, __half>, p);
      }
      return true;
    });
  });
}

bool launch_mlp_half(const LaunchContext& c, const MlpHalf& t) {
  HalfParams p{.stream = t.stream, .norm = t.norm, .eps = t.eps, .first = {t.gate.w, t.up.w, {}}, .second = t.down.w};
  return with_layer_types(t.gate.dtype, t.down.dtype, [&]<DType F, DType F2>() {
    return with_layer_tokens(t.stream.tokens, [&]<int kTokens>() {
      using At = HalfLayout<F, F2, false, kTokens>;
      if (!map_second<At>(p)) return false;
      launch(c, half_shape<At>(), mlp_half_kernel<F, F2, kTokens>, p);
      return true;
    });
  });
}

void launch_layer_sum(const LaunchContext& c, const LayerStream& stream, float* out) {
  constexpr int kThreads = 128;
  const int blocks = stream.tokens * kLayerWidth / kThreads;
  launch(c, {dim3(blocks), dim3(kThreads)}, layer_sum_kernel, stream, layer_tokens(stream.tokens) * kLayerWidth, out);
}

}  // namespace inferno::cuda
