// Half a layer of one token as one kernel: attention from the norm to the output projection, or the MLP (compute
// capability 9.0, the shape of layer_task.h).
//
// What limits one stream is the number of dependent kernels and not their work, so what would need another kernel is an
// exchange within a cluster of eight blocks instead. A cluster has one query head, or 256 (16-bit weights: 192) values
// of the MLP's middle:
//   1. Each block adds an eighth of the stream's row (the sum of the parts that all clusters of the previous kernel
//      left), multiplies it with the norm's weights, rounds or quantizes it, and sends it to the others.
//   2. Each block multiplies 48 (MLP: 64 or 48) rows of the first weights with the whole row and sends the results to
//   the others:
//      q, k and v (k and v by both clusters that share a kv head: their second read is a hit in L2), or gate and up.
//   3. Attention alone: each block has every eighth run of positions, and sends its part of the result.
//   4. Each block multiplies the cluster's columns of 128 rows of the second weights, and stores its part of the row.
// All weights are prefetched into shared memory before wait_for_previous(); 16-bit ones have no room for the second
// weights, which replace the first.
//
// Sending is st.async: a barrier of the receiver counts the bytes, and each barrier is used once. A block may exit once
// it has received all, since nothing more is sent to it.
#pragma once

#include "backend/cuda/kernels/cluster.cuh"
#include "backend/cuda/kernels/layer_layout.cuh"

namespace inferno::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ void send(uint32_t to, uint32_t v, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(v),
               "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send(uint32_t to, float v, uint32_t barrier) {
  send(to, __float_as_uint(v), barrier);
}
// copy_box() of what is read once in a step.
__device__ __forceinline__ void copy_box_once(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ __forceinline__ float4 load_shared_float4(uint32_t at) {
  const uint4 v = load_shared_16(at);
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}
__device__ __forceinline__ float2 load_shared_float2(uint32_t at) {
  const uint2 v = load_shared_8(at);
  return make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
}
__device__ __forceinline__ float load_shared_float(uint32_t at) {
  return __uint_as_float(load_shared_4(at));
}
__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
// a + f * b
__device__ __forceinline__ float4 fma4(float f, float4 b, float4 a) {
  return make_float4(fmaf(f, b.x, a.x), fmaf(f, b.y, a.y), fmaf(f, b.z, a.z), fmaf(f, b.w, a.w));
}

// Sums of eight values over the warp: lane l gets that of value l / 4.
__device__ __forceinline__ float warp_sum_8(const float* v, int lane) {
  const bool upper = (lane & 16) != 0;
  const bool second = (lane & 8) != 0;
  const bool odd = (lane & 4) != 0;
  float four[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    four[i] = (upper ? v[i + 4] : v[i]) + __shfl_xor_sync(kFullMask, upper ? v[i] : v[i + 4], 16);
  }
  float two[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    two[i] = (second ? four[i + 2] : four[i]) + __shfl_xor_sync(kFullMask, second ? four[i] : four[i + 2], 8);
  }
  float sum = (odd ? two[1] : two[0]) + __shfl_xor_sync(kFullMask, odd ? two[0] : two[1], 4);
  sum += __shfl_xor_sync(kFullMask, sum, 2);
  return sum + __shfl_xor_sync(kFullMask, sum, 1);
}

// A block of a half, as all its warps see it.
template <DType F, DType F2, bool kAttention>
struct HalfBlock {
  using At = HalfLayout<F, F2, kAttention>;
  const HalfParams& p;
  uint8_t* shared;
  uint32_t base;  // its address
  int thread, lane, warp;
  int rank, cluster;

  __device__ __forceinline__ HalfBlock(const HalfParams& params, uint8_t* memory)
      : p(params),
        shared(memory),
        base(shared_address(memory)),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % kWarp),
        warp(thread / kWarp),
        rank(static_cast<int>(blockIdx.x) % kLayerBlocks),
        cluster(static_cast<int>(blockIdx.x) / kLayerBlocks) {}

  [[nodiscard]] __device__ __forceinline__ uint32_t barrier(int i) const { return base + i * 8; }

  // All threads: barriers are ready in this block, and after wait_cluster() in the others; the first weights, and the
  // second where there is room, are requested. Rows from `begin` on of the first weight, from `others` on of those
  // after it.
  __device__ __forceinline__ void open(int begin, int others) const {
    if (warp == kRequesting) {
      if (lane < At::kBarriers) init_barrier(barrier(lane), 1);
      fence_barrier_init();
      __syncwarp();
      if (lane == At::kRow) arrive_expecting(barrier(At::kRow), At::kRowBytes);
      if (lane == At::kResults) arrive_expecting(barrier(At::kResults), At::kReceivedBytes);
      if (lane == At::kParts) arrive_expecting(barrier(At::kParts), kLayerBlocks * (At::kHeadBytes + 8));
      fence_async_shared();
    }
    __syncthreads();
    arrive_cluster();
    if (warp == kRequesting) {
      if (lane == 0) {
        prefetch_first(begin, others);
        if constexpr (!At::kTiles) prefetch_second();
      }
      __syncwarp();
    }
  }
  static constexpr int kRequesting = 6;  // a warp that has no results of tensor cores to send

  // ---- weights

  [[nodiscard]] __device__ __forceinline__ uint32_t quarter(int q) const {
    return base + At::kSecondAt + q * At::kQuarterBytes;
  }
  // One thread.
  __device__ __forceinline__ void prefetch_first(int begin, int others) const {
    constexpr int kPiecesEach = At::kPieces / (kAttention ? 3 : 2);
#pragma unroll 1
    for (int n = 0; n < At::kPieces; ++n) {
      const int i = n / kPiecesEach;
      const int64_t row = (i == 0 ? begin : others) + n % kPiecesEach * kPieceRows;
      const uint32_t to = base + At::kFirst + n * At::kPieceBytes;
      if (kAttention && F != F2 && i == 2) {
        copy_piece<F2>(p.first[i], row, to, barrier(At::kFull + n));
      } else {
        copy_piece<F>(p.first[i], row, to, barrier(At::kFull + n));
      }
    }
  }
  __device__ __forceinline__ void prefetch_second() const {
#pragma unroll 1
    for (int q = 0; q < kQuarters; ++q) copy_quarter(q);
  }
  template <DType T>
  static __device__ __forceinline__ void copy_piece(const Planes& w, int64_t row, uint32_t to, uint32_t barrier) {
    constexpr RowBytes kBytes = row_space(T, kLayerWidth / kGroup);
    arrive_expecting(barrier, At::piece_bytes(T));
    const auto copy = [&](const uint8_t* plane, int bytes) {
      if (bytes == 0) return;
      copy_bytes(to, plane + row * bytes, kPieceRows * bytes, barrier);
      to += kPieceRows * bytes;
    };
    copy(w.q, kBytes.q);
    copy(w.h, kBytes.h);
    copy(w.s, kBytes.s);
    copy(w.d, kBytes.d);
  }
  __device__ __forceinline__ void copy_quarter(int q) const {
    const uint32_t full = barrier(At::kFull + At::kPieces + q);
    const uint32_t to = quarter(q);
    const int row = rank * kLayerSlice + q * kQuarterRows;
    arrive_expecting(full, At::kQuarterUsed);
    if constexpr (At::kSecond == DType::q8_0) {
      constexpr int kHalf = At::kSlice.q / 2;
      copy_box_once(to, &p.maps.q, cluster * kHalf / 2, row, full);
      copy_box_once(to + kQuarterRows * kHalf, &p.maps.q, (At::kSecondWidth / 2 + cluster * kHalf) / 2, row, full);
    } else {
      copy_box_once(to, &p.maps.q, cluster * At::kSlice.q / 2, row, full);
    }
    if constexpr (At::kSlice.h != 0) {
      copy_box_once(to + At::kQuarterH, &p.maps.h, cluster * At::kSlice.h / 2, row, full);
    }
    if constexpr (At::kScaleBytes != 0) {
      copy_box_once(to + At::kQuarterS, &p.maps.s, (cluster * At::kSlice.s & ~15) / 2, row, full);
    }
    if constexpr (At::kSuperBytes != 0) {
      copy_bytes(to + At::kQuarterD, p.second.d + int64_t{row} * At::kSuperBytes, kQuarterRows * At::kSuperBytes, full);
    }
  }

  // ---- the row

  // The norm's weights of the thread's columns.
  [[nodiscard]] __device__ __forceinline__ float4 norm_weights() const {
    return *reinterpret_cast<const float4*>(p.norm + rank * kLayerSlice + lane * 4);
  }
  // After wait_for_previous(): adds the stream's parts, and exchanges the row. Returns the norm's factor, which
  // multiplies the products (stream_activations.cuh).
  __device__ __forceinline__ float exchange_row(float4 norm) const {
    const int column = rank * kLayerSlice + lane * 4;
    const LayerStream& s = p.stream;
    // A warp adds two parts of the slice; then each adds all eight sums, for the block it sends to.
    float4 sum = make_float4(0, 0, 0, 0);
    float4 other = sum;
    if (warp < s.count) sum = load_fresh4(s.parts + warp * kLayerWidth + column);
    if (warp + kLayerWarps < s.count) other = load_fresh4(s.parts + (warp + kLayerWarps) * kLayerWidth + column);
    if (warp == kLayerWarps - 1) other = other + load_fresh4(s.row + column);
    sum = sum + other;
    float4* added = reinterpret_cast<float4*>(shared + At::kAdded);
    added[thread] = sum;
    __syncthreads();
    sum = added[lane];
#pragma unroll
    for (int w = 1; w < kLayerWarps; ++w) sum = sum + added[w * kWarp + lane];
    if (cluster == 0 && warp == 0) *reinterpret_cast<float4*>(s.row_out + column) = sum;
    float squares = sum.x * sum.x + sum.y * sum.y + sum.z * sum.z + sum.w * sum.w;
    sum = make_float4(sum.x * norm.x, sum.y * norm.y, sum.z * norm.z, sum.w * norm.w);

    const uint32_t there = address_in(base, warp);
    const uint32_t full = there + At::kRow * 8;
    if constexpr (At::kTiles) {
      send(there + At::kX + column * 2,
           make_float2(__uint_as_float(pack_pair<__nv_bfloat16>(sum.x, sum.y)),
                       __uint_as_float(pack_pair<__nv_bfloat16>(sum.z, sum.w))),
           full);
    } else {
      send_quantized(there + At::kX, column, sum, full);
    }
    squares = warp_sum(squares);
    if (lane == 0) send(there + At::kSquares + rank * 4, squares, full);
    __syncwarp();
    wait_received(barrier(At::kRow), 0);
    float total = 0;
#pragma unroll
    for (int i = 0; i < kLayerBlocks; ++i) total += load_shared_float(base + At::kSquares + i * 4);
    return rsqrtf(total * (1.0F / kLayerWidth) + p.eps);
  }
  // Four values of a row, and with the group's first ones its scale and sums, as XQuant has them.
  static __device__ __forceinline__ void send_quantized(uint32_t x, int column, float4 v, uint32_t full) {
    constexpr int kRowGroups = kLayerWidth / kGroup;
    uint32_t bits = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
#pragma unroll
    for (int step = 1; step < kGroup / 4; step *= 2) bits = max(bits, __shfl_xor_sync(kFullMask, bits, step));
    const float2 scale = quantization(bits);
    const uint32_t levels =
        ActivationWriter<F>::pack_levels(__float2int_rn(v.x * scale.y), __float2int_rn(v.y * scale.y),
                                         __float2int_rn(v.z * scale.y), __float2int_rn(v.w * scale.y));
    const int group = column / kGroup;
    const int half = column % kGroup / 16;
    send(x + half * kRowGroups * 16 + group * 16 + column % 16, levels, full);
    if (column % kGroup == 0) send(x + kRowGroups * 32 + group * 4, scale.x, full);
    if constexpr (At::kHasSums) {
      int sum = __dp4a(static_cast<int>(levels), 0x01010101, 0);
      sum += __shfl_xor_sync(kFullMask, sum, 1);
      sum += __shfl_xor_sync(kFullMask, sum, 2);
      const int other = __shfl_down_sync(kFullMask, sum, 4);
      if (column % kGroup == 0) send(x + kRowGroups * 36 + group * 4, packed_sums(sum, other), full);
    }
  }
  static __device__ __forceinline__ uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffU; }
  static __device__ __forceinline__ uint32_t packed_sums(int a, int b) {
    return (static_cast<uint32_t>(a) & 0xffffU) | static_cast<uint32_t>(b) << 16;
  }
  // The scale of a group whose largest magnitude has these bits, and its reciprocal (ActivationWriter). K formats get
  // one per 32 values, too: a block does not have 256.
  static __device__ __forceinline__ float2 quantization(uint32_t bits) {
    constexpr float kSmallest = 1e-30F;
    const float largest = __uint_as_float(bits);
    if (largest < kSmallest) return make_float2(0, 0);
    return make_float2(largest * (1.0F / 127.0F), __fdividef(127.0F, largest));
  }

  // ---- the first product

  // Quantized: results of the warp's rows row_of(0), row_of(1), ..., of which attention's last two are v's; lane l has
  // that of row l / 4.
  template <typename RowOf>
  __device__ __forceinline__ float multiply_rows(RowOf row_of) const {
#pragma unroll 1
    for (int n = 0; n < At::kPieces; ++n) wait_barrier(barrier(At::kFull + n), 0);
    const XGroup x = Part<F>::activations(shared + At::kX, kLayerWidth / kGroup, 0, lane);
    constexpr int kWarpRows = At::kRows / kLayerWarps;
    float v[8] = {};
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      v[i] = kAttention && F != F2 && i >= 4 ? multiply_row<F2>(row_of(i), x) : multiply_row<F>(row_of(i), x);
    }
    return warp_sum_8(v, lane);
  }
  template <DType T>
  __device__ __forceinline__ float multiply_row(int row, const XGroup& x) const {
    constexpr RowBytes kBytes = row_space(T, kLayerWidth / kGroup);
    constexpr int kQ = kPieceRows * kBytes.q;
    constexpr int kH = kQ + kPieceRows * kBytes.h;
    constexpr int kS = kH + kPieceRows * kBytes.s;
    const uint32_t at = base + At::kFirst + row / kPieceRows * At::kPieceBytes;
    const int r = row % kPieceRows;
    Part<T> part;
    part.load(SharedRow{at + r * kBytes.q, at + kQ + r * kBytes.h, at + kH + r * kBytes.s, at + kS + r * kBytes.d},
              kBytes, 0, lane);
    return part.multiply(x, 0);
  }

  // 16-bit: each warp multiplies every eighth block of 32 columns of all rows, as TileMultiplier does; on return
  // result() has the rows.
  __device__ __forceinline__ void multiply_tiles() const {
    const int g = lane / 4;
    const int odd_row = g % 2;
    uint4 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = load_shared_16(base + At::kX + ((warp + i * kLayerWarps) ^ odd_row) * 64 + lane % 4 * 16);
    }
#pragma unroll 1
    for (int tile = 0; tile < At::kRows / 16; ++tile) {
      const uint32_t above = base + At::kFirst + (tile * 16 + g) * kLayerWidth * 2 + lane % 4 * 16;
      const uint32_t below = above + 8 * kLayerWidth * 2;
      float even[4] = {};
      float odd[4] = {};
      wait_barrier(barrier(At::kFull + 2 * tile), 0);
      wait_barrier(barrier(At::kFull + 2 * tile + 1), 0);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = ((warp + i * kLayerWarps) ^ odd_row) * 64;
        const uint4 a = load_shared_16(above + at);
        const uint4 b = load_shared_16(below + at);
        mma<__nv_bfloat16>(even, a.x, b.x, a.y, b.y, x[i].x, x[i].y);
        mma<__nv_bfloat16>(odd, a.z, b.z, a.w, b.w, x[i].z, x[i].w);
      }
      if (lane % 4 == 0) {
        float* sums = reinterpret_cast<float*>(shared + At::kSums) + (tile * 16 + g) * kLayerWarps + warp;
        sums[0] = odd_row == 0 ? even[0] + odd[0] : even[1] + odd[1];
        sums[8 * kLayerWarps] = odd_row == 0 ? even[2] + odd[2] : even[3] + odd[3];
      }
    }
    __syncthreads();
    if (warp == kRequesting && lane == 0) prefetch_second();  // the first weights have been read
  }
  [[nodiscard]] __device__ __forceinline__ float result(int row) const {
    const float4 a = load_shared_float4(base + At::kSums + row * kLayerWarps * 4);
    const float4 b = load_shared_float4(base + At::kSums + row * kLayerWarps * 4 + 16);
    return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
  }
  // To every fourth block, from this lane's on.
  __device__ __forceinline__ void send_result(int index, float v) const {
#pragma unroll
    for (int to = 0; to < kLayerBlocks; to += 4) {
      const uint32_t there = address_in(base, to + lane % 4);
      send(there + At::kReceived + index * 4, v, there + At::kResults * 8);
    }
  }

  // ---- the second product

  // Value `column` of its input, one per lane of a warp with a whole group.
  __device__ __forceinline__ void put_middle(int column, float v) const {
    uint8_t* x = shared + At::kMiddle;
    if constexpr (At::kTiles) {
      reinterpret_cast<__nv_bfloat16*>(x)[column] = __float2bfloat16_rn(v);
    } else {
      const XQuant row{x, kMiddleGroups};
      const float2 scale = quantization(__reduce_max_sync(kFullMask, magnitude(v)));
      const int level = __float2int_rn(v * scale.y);
      const int group = column / kGroup;
      (lane < 16 ? row.a() : row.b())[group * 16 + lane % 16] = static_cast<uint8_t>(level);
      if (lane == 0) row.d()[group] = scale.x;
      if constexpr (At::kHasSums) {
        int sum = level;
#pragma unroll
        for (int step = 1; step < 16; step *= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
        const int other = __shfl_down_sync(kFullMask, sum, 16);
        if (lane == 0) row.sums()[group] = packed_sums(sum, other);
      }
    }
  }
  static constexpr int kMiddleGroups = 8;  // of the input, padded

  // The block's rows of the second product, which it stores; after put_middle() and a barrier.
  __device__ __forceinline__ void multiply_second() const {
    constexpr int kWarpRows = kLayerSlice / kLayerWarps;
    const int q = warp / 2;
    const int first = warp % 2 * kWarpRows;
    float* out = p.stream.parts_out + cluster * kLayerWidth + rank * kLayerSlice + warp * kWarpRows;
    wait_barrier(barrier(At::kFull + At::kPieces + q), 0);
    if constexpr (At::kTiles) {
      const int g = lane / 4;
      const int odd_row = g % 2;
      const uint32_t above = quarter(q) + (first + g) * At::kSlice.q + lane % 4 * 16;
      const uint32_t below = above + 8 * At::kSlice.q;
      float even[4] = {};
      float odd[4] = {};
#pragma unroll
      for (int i = 0; i < At::kGroups; ++i) {
        const int at = (i ^ odd_row) * 64;
        const uint4 x = load_shared_16(base + At::kMiddle + at + lane % 4 * 16);
        const uint4 a = load_shared_16(above + at);
        const uint4 b = load_shared_16(below + at);
        mma<__nv_bfloat16>(even, a.x, b.x, a.y, b.y, x.x, x.y);
        mma<__nv_bfloat16>(odd, a.z, b.z, a.w, b.w, x.z, x.w);
      }
      if (lane % 4 == 0) {
        out[g] = odd_row == 0 ? even[0] + odd[0] : even[1] + odd[1];
        out[g + 8] = odd_row == 0 ? even[2] + odd[2] : even[3] + odd[3];
      }
    } else {
      constexpr int kStep = kWarp / At::kGroups;  // rows at a time, a lane has one group
      const int g = lane % At::kGroups;
      const XGroup x = XQuant{shared + At::kMiddle, kMiddleGroups}.group(g);
#pragma unroll
      for (int i = 0; i < kWarpRows / kStep; ++i) {
        const int r = i * kStep + lane / At::kGroups;
        float sum = multiply_group(quarter(q), first + r, g, x);
#pragma unroll
        for (int step = 1; step < At::kGroups; step *= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
        if (g == 0) out[r] = sum;
      }
    }
  }
  // Group g of the cluster's columns of a row, times x.
  __device__ __forceinline__ float multiply_group(uint32_t slice, int row, int g, const XGroup& x) const {
    constexpr GroupBytes kBytes = group_bytes(At::kSecond);
    constexpr bool kHalves = At::kSecond == DType::q8_0;  // of the groups are one after another
    constexpr int kRow = kHalves ? At::kSlice.q / 2 : At::kSlice.q;
    // As many groups as there are from the one half to the other.
    constexpr RowBytes kRowBytes = {0, 0, (kHalves ? kQuarterRows * kRow / 16 : At::kGroups) * kBytes.s, 0};
    const int scales = cluster * At::kSlice.s % 16;
    const int super = (cluster * At::kGroups + g) / 8 * kBytes.d;
    Part<At::kSecond> part;
    part.load(SharedRow{slice + row * kRow, slice + At::kQuarterH + row * At::kSlice.h,
                        slice + At::kQuarterS + row * At::kScaleBytes + scales,
                        slice + At::kQuarterD + row * At::kSuperBytes + super},
              kRowBytes, 0, g);
    return part.multiply(x, 0);
  }
};

#endif

}  // namespace inferno::cuda
