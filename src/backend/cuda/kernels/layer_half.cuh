// Half a layer of one to four tokens as one kernel: attention from the norm to the output projection, or the MLP
// (compute capability 9.0, the shape of layer_task.h).
//
// What limits one stream is the number of dependent kernels and not their work, so what would need another kernel is an
// exchange within a cluster of eight blocks instead. A cluster has one query head, or 256 values of the MLP's middle
// (16-bit weights: 224 with one or two tokens, 192 with four):
//   1. Each block adds an eighth of the stream's row (the sum of the parts that all clusters of the previous kernel
//      left), multiplies it with the norm's weights, rounds or quantizes it, and sends it to the others.
//   2. Each block multiplies 48 (MLP: 64, 56 or 48) rows of the first weights with the whole row and sends the results
//      to the others: q, k and v (k and v by both clusters that share a kv head: their second read is a hit in L2), or
//      gate and up (layer_products.cuh).
//   3. Attention alone: each block has an eighth of the positions (layer_attention.cuh), and sends its part of the
//      result.
//   4. Each block multiplies the cluster's columns of 128 rows of the second weights, and stores its part of the row.
// Several tokens, which are of different sequences, share all of this: each weight is read once. In steps 1 and 3 each
// token has an equal share of a block's warps. Three tokens are four, of which the last is not stored.
// All weights are prefetched into shared memory before wait_for_previous(); 16-bit ones have no room for the second
// weights, which replace the first. Those of the MLP of one or two tokens precede the first instead, and are held in
// registers.
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

// A block of a half, as all its warps see it.
template <DType F, DType F2, bool kAttention, int kTokenCount>
struct HalfBlock {
  static constexpr int kTokens = kTokenCount;
  using At = HalfLayout<F, F2, kAttention, kTokens>;
  static constexpr int kTokenWarps = At::kTokenWarps;
  const HalfParams& p;
  uint8_t* shared;
  uint32_t base;  // its address
  int thread, lane, warp;
  int token, share;  // the warp's in the exchange of rows and in attention, and which of the token's warps it is
  int rank, cluster;

  __device__ __forceinline__ HalfBlock(const HalfParams& params, uint8_t* memory)
      : p(params),
        shared(memory),
        base(shared_address(memory)),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % kWarp),
        warp(thread / kWarp),
        token(warp / kTokenWarps),
        share(warp % kTokenWarps),
        rank(static_cast<int>(blockIdx.x) % kLayerBlocks),
        cluster(static_cast<int>(blockIdx.x) / kLayerBlocks) {}

  [[nodiscard]] __device__ __forceinline__ uint32_t barrier(int i) const { return base + i * 8; }
  // Of the cluster.
  [[nodiscard]] __device__ __forceinline__ int columns() const {
    return cluster == At::kClusters - 1 ? At::kLastColumns : At::kColumns;
  }
  // Of the block's rows of the first weights.
  [[nodiscard]] __device__ __forceinline__ int pieces() const {
    return kAttention ? At::kPieces : columns() * 2 / kLayerBlocks / kPieceRows;
  }

  // All threads: barriers are ready in this block, and after wait_cluster() in the others; the first weights, and the
  // second where there is room, are requested. Rows from `begin` on of the first weight, from `others` on of those
  // after it.
  __device__ __forceinline__ void open(int begin, int others) const {
    if (warp == kRequesting) {
      if (lane < At::kBarriers) init_barrier(barrier(lane), 1);
      fence_barrier_init();
      __syncwarp();
      if (lane == At::kRow) arrive_expecting(barrier(At::kRow), kTokens * At::kRowBytes);
      if (lane == At::kResults) {
        arrive_expecting(barrier(At::kResults), kTokens * (kAttention ? At::kReceivedBytes : columns() * 4));
      }
      if (lane == At::kParts) arrive_expecting(barrier(At::kParts), kTokens * kLayerBlocks * (At::kHeadBytes + 8));
      fence_async_shared();
    }
    __syncthreads();
    arrive_cluster();
    if (warp == kRequesting) {
      if (!At::kHeld) prefetch_first(begin, others);
      if ((!At::kTiles || At::kHeld) && lane == 0) prefetch_second();
      __syncwarp();
    }
  }
  static constexpr int kRequesting = 6;  // a warp that has no results of tensor cores to send

  // ---- weights

  [[nodiscard]] __device__ __forceinline__ uint32_t quarter(int q) const {
    return base + At::kSecondAt + q * At::kQuarterBytes;
  }
  // One warp.
  __device__ __forceinline__ void prefetch_first(int begin, int others) const {
    if (At::kPad == 0 && lane != 0) return;
    if constexpr (At::kTiles && !kAttention) {
      prefetch_middle(begin);
      return;
    }
    constexpr int kPiecesEach = At::kPieces / (kAttention ? 3 : 2);
#pragma unroll 1
    for (int n = 0; n < At::kPieces; ++n) {
      const int i = n / kPiecesEach;
      const int64_t row = (i == 0 ? begin : others) + n % kPiecesEach * kPieceRows;
      if (At::kInFlight < At::kPieces && n >= At::kInFlight) wait_barrier(barrier(At::kFull + n - At::kInFlight), 0);
      const uint32_t to = base + At::kFirst + n * At::kPieceBytes;
      if (kAttention && F != F2 && i == 2) {
        copy_piece<F2>(p.first[i], row, to, barrier(At::kFull + n));
      } else {
        copy_piece<F>(p.first[i], row, to, barrier(At::kFull + n));
      }
    }
  }
  // 16-bit weights of the MLP: half of a piece's rows are of gate, the others of up.
  __device__ __forceinline__ void prefetch_middle(int begin) const {
    constexpr int kHalf = kPieceRows / 2 * kLayerWidth * 2;
#pragma unroll 1
    for (int n = 0; n < pieces(); ++n) {
      const uint32_t to = base + At::kFirst + n * At::kPieceBytes;
      const uint32_t full = barrier(At::kFull + n);
      const int64_t from = (begin + n * kPieceRows / 2) * int64_t{kLayerWidth * 2};
      arrive_expecting(full, 2 * kHalf);
      copy_bytes(to, p.first[0].q + from, kHalf, full);
      copy_bytes(to + kHalf, p.first[1].q + from, kHalf, full);
    }
  }
  __device__ __forceinline__ void prefetch_second() const {
#pragma unroll 1
    for (int q = 0; q < kQuarters; ++q) copy_quarter(q);
  }
  template <DType T>
  __device__ __forceinline__ void copy_piece(const Planes& w, int64_t row, uint32_t to, uint32_t barrier) const {
    constexpr RowBytes kBytes = row_space(T, kLayerWidth / kGroup);
    if (lane == 0) arrive_expecting(barrier, At::piece_bytes(T));
    if constexpr (At::kPad != 0) {  // a row of planes q and h is a copy of its own
      __syncwarp();
      const auto copy_row = [&](const uint8_t* plane, int bytes) {
        if (bytes == 0) return;
        if (lane < kPieceRows) copy_bytes(to + lane * (bytes + At::kPad), plane + (row + lane) * bytes, bytes, barrier);
        to += kPieceRows * (bytes + At::kPad);
      };
      copy_row(w.q, kBytes.q);
      copy_row(w.h, kBytes.h);
      if (lane != 0) return;
    }
    const auto copy = [&](const uint8_t* plane, int bytes) {
      if (bytes == 0) return;
      copy_bytes(to, plane + row * bytes, kPieceRows * bytes, barrier);
      to += kPieceRows * bytes;
    };
    if constexpr (At::kPad == 0) {
      copy(w.q, kBytes.q);
      copy(w.h, kBytes.h);
    }
    copy(w.s, kBytes.s);
    copy(w.d, kBytes.d);
  }
  __device__ __forceinline__ void copy_quarter(int q) const {
    const uint32_t full = barrier(At::kFull + At::kPieces + q);
    const uint32_t to = quarter(q);
    const int row = rank * kLayerSlice + q * kQuarterRows;
    arrive_expecting(full, At::kQuarterUsed);
    if constexpr (At::kSecond == DType::q8_0) {
      copy_box_once(to, &p.maps.q, cluster * At::kBox / 2, row, full);
      copy_box_once(to + kQuarterRows * At::kBox, &p.maps.q, (At::kSecondWidth / 2 + cluster * At::kBox) / 2, row,
                    full);
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
    return *reinterpret_cast<const float4*>(p.norm + row_column());
  }
  // The row's columns that a thread exchanges, from here on.
  [[nodiscard]] __device__ __forceinline__ int row_column() const {
    return rank * kLayerSlice + (At::kWarpColumns ? share_known() % kRowWarps * At::kExchanged : 0) + lane % kLanes * 4;
  }
  // Token and share, without instructions where there is one token.
  [[nodiscard]] __device__ __forceinline__ int token_known() const { return kTokens == 1 ? 0 : token; }
  [[nodiscard]] __device__ __forceinline__ int share_known() const { return kTokens == 1 ? warp : share; }
  static constexpr int kLanes = At::kExchanged / 4;               // that have all columns of a warp
  static constexpr int kRowWarps = kLayerSlice / At::kExchanged;  // that have all columns of a block
  static constexpr int kLaneGroups = kWarp / kLanes;
  // After wait_for_previous(): adds the stream's parts, and exchanges the rows.
  __device__ __forceinline__ void exchange_row(float4 norm) const {
    const int column = row_column();
    float4 sum = At::kWarpColumns ? sum_in_warp(column) : sum_in_block(column);
    const bool stores = At::kWarpColumns ? share_known() < kRowWarps && lane < kLanes : share == 0;
    if (cluster == 0 && stores) *reinterpret_cast<float4*>(p.stream.row_out + token * kLayerWidth + column) = sum;
    float squares = sum.x * sum.x + sum.y * sum.y + sum.z * sum.z + sum.w * sum.w;
    sum = make_float4(sum.x * norm.x, sum.y * norm.y, sum.z * norm.z, sum.w * norm.w);

    const uint32_t x = At::kX + token * At::kXBytes;
    if constexpr (At::kTiles) {
      const float2 values = make_float2(__uint_as_float(pack_pair<__nv_bfloat16>(sum.x, sum.y)),
                                        __uint_as_float(pack_pair<__nv_bfloat16>(sum.z, sum.w)));
      to_my_blocks([&](uint32_t there, uint32_t full) { send(there + x + column * 2, values, full); });
    } else {
      send_quantized(x, column, sum);
    }
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) squares += __shfl_xor_sync(kFullMask, squares, step);
    if (lane % kLanes == 0) {
      const int index = token * At::kSquareCount + column / At::kExchanged;
      to_my_blocks([&](uint32_t there, uint32_t full) { send(there + At::kSquares + index * 4, squares, full); });
    }
    __syncwarp();
    wait_received(barrier(At::kRow), 0);
  }
  // A lane adds every fourth part, then the lanes exchange their sums.
  [[nodiscard]] __device__ __forceinline__ float4 sum_in_warp(int column) const {
    const LayerStream& s = p.stream;
    constexpr int kEach = kMaxLayerClusters / kLaneGroups;
    float4 part[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = lane / kLanes + i * kLaneGroups;
      part[i] = make_float4(0, 0, 0, 0);
      if (c < s.count) part[i] = load_fresh4(s.parts + (c * kTokens + token_known()) * kLayerWidth + column);
    }
    const float4 row = load_fresh4(s.row + token_known() * kLayerWidth + column);
    float4 sum = part[0];
#pragma unroll
    for (int i = 1; i < kEach; ++i) sum = sum + part[i];
#pragma unroll
    for (int step = kLanes; step < kWarp; step *= 2) {
      sum = sum + make_float4(__shfl_xor_sync(kFullMask, sum.x, step), __shfl_xor_sync(kFullMask, sum.y, step),
                              __shfl_xor_sync(kFullMask, sum.z, step), __shfl_xor_sync(kFullMask, sum.w, step));
    }
    return sum + row;
  }
  // A warp adds some parts of its token's slice; then each of the token's warps adds all their sums, for the blocks it
  // sends to.
  [[nodiscard]] __device__ __forceinline__ float4 sum_in_block(int column) const {
    const LayerStream& s = p.stream;
    constexpr int kEach = kMaxLayerClusters / kTokenWarps;
    float4 part[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = share + i * kTokenWarps;
      part[i] = make_float4(0, 0, 0, 0);
      if (c < s.count) part[i] = load_fresh4(s.parts + (c * kTokens + token) * kLayerWidth + column);
    }
    if (share == kTokenWarps - 1) {
      const int row = kTokens == 4 ? min(token, s.tokens - 1) : token;
      part[kEach - 1] = part[kEach - 1] + load_fresh4(s.row + row * kLayerWidth + column);
    }
    float4 sum = part[0];
#pragma unroll
    for (int i = 1; i < kEach; ++i) sum = sum + part[i];
    float4* added = reinterpret_cast<float4*>(shared + At::kAdded);
    added[thread] = sum;
    __syncthreads();
    added += token * kTokenWarps * kWarp + lane;
    sum = added[0];
#pragma unroll
    for (int w = 1; w < kTokenWarps; ++w) sum = sum + added[w * kWarp];
    if constexpr (At::kTight) __syncthreads();  // results may take the place of what was added
    return sum;
  }
  // The factor of a token's norm, which multiplies the products (stream_activations.cuh); after exchange_row().
  [[nodiscard]] __device__ __forceinline__ float factor(int of_token) const {
    float total = 0;
    if constexpr (At::kWarpColumns) {
      static_assert(At::kSquareCount == kWarp);
      total = warp_sum(load_shared_float(base + At::kSquares + (of_token * kWarp + lane) * 4));
    } else {
#pragma unroll
      for (int i = 0; i < kLayerBlocks; ++i) {
        total += load_shared_float(base + At::kSquares + (of_token * kLayerBlocks + i) * 4);
      }
    }
    return rsqrtf(total * (1.0F / kLayerWidth) + p.eps);
  }
  // Of all tokens, computed by whole warps; of which a lane takes one later.
  struct Factors {
    float each[kTokens];
    [[nodiscard]] __device__ __forceinline__ float of(int of_token) const {
      float factor = each[0];
#pragma unroll
      for (int t = 1; t < kTokens; ++t) factor = of_token == t ? each[t] : factor;
      return factor;
    }
  };
  [[nodiscard]] __device__ __forceinline__ Factors factors() const {
    Factors all;
#pragma unroll
    for (int t = 0; t < kTokens; ++t) all.each[t] = factor(t);
    return all;
  }
  // Calls visit(block, its barrier of rows) for the blocks that this lane sends to.
  template <typename Visit>
  __device__ __forceinline__ void to_my_blocks(Visit visit) const {
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int to =
          At::kWarpColumns ? (share_known() / kRowWarps + i) * kLaneGroups + lane / kLanes : share + i * kTokenWarps;
      const uint32_t there = address_in(base, to);
      visit(there, there + At::kRow * 8);
    }
  }
  // Four of a warp's 128 adjacent values as levels, with their scale.
  struct Levels {
    uint32_t four;
    float scale;
  };
  static __device__ __forceinline__ Levels quantized(float4 v) {
    uint32_t bits = max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
    if constexpr (At::kSliceScale) {
      bits = __reduce_max_sync(kFullMask, bits);
    } else {
#pragma unroll
      for (int step = 1; step < kGroup / 4; step *= 2) bits = max(bits, __shfl_xor_sync(kFullMask, bits, step));
    }
    const float2 scale = quantization(bits);
    return {ActivationWriter<F>::pack_levels(__float2int_rn(v.x * scale.y), __float2int_rn(v.y * scale.y),
                                             __float2int_rn(v.z * scale.y), __float2int_rn(v.w * scale.y)),
            scale.x};
  }
  // Calls put(address, word) for what a lane has to store of column `column` and the next three, in arrays of XQuant
  // from address `x` on.
  template <typename Address, typename Put>
  static __device__ __forceinline__ void put_levels(const Levels& levels, Address x, int column, int groups, Put put) {
    const int group = column / kGroup;
    const int half = column % kGroup / 16;
    put(x + half * groups * 16 + group * 16 + column % 16, levels.four);
    constexpr int kScaled = At::kSliceScale ? kSliceColumns : kGroup;  // that share a scale
    if (column % kScaled == 0) put(x + groups * 32 + column / kScaled * 4, __float_as_uint(levels.scale));
  }
  // The sums of a group's halves, in its first lane.
  static __device__ __forceinline__ uint32_t sums_of(const Levels& levels) {
    int sum = __dp4a(static_cast<int>(levels.four), 0x01010101, 0);
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    sum += __shfl_xor_sync(kFullMask, sum, 2);
    return packed_sums(sum, __shfl_down_sync(kFullMask, sum, 4));
  }
  // Four values of a row, as XQuant has them.
  __device__ __forceinline__ void send_quantized(uint32_t x, int column, float4 v) const {
    constexpr int kRowGroups = kLayerWidth / kGroup;
    const Levels levels = quantized(v);
    to_my_blocks([&](uint32_t there, uint32_t full) {
      put_levels(levels, there + x, column, kRowGroups, [&](uint32_t to, uint32_t word) { send(to, word, full); });
    });
    if constexpr (At::kHasSums) {
      const uint32_t sums = sums_of(levels);
      const int group = column / kGroup;
      if (column % kGroup == 0) {
        to_my_blocks([&](uint32_t there, uint32_t full) { send(there + x + kRowGroups * 36 + group * 4, sums, full); });
      }
    }
  }
  static __device__ __forceinline__ uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffU; }
  static __device__ __forceinline__ uint32_t packed_sums(int a, int b) {
    if constexpr (At::kSliceScale) return pack_pair<__half>(static_cast<float>(a), static_cast<float>(b));
    return (static_cast<uint32_t>(a) & 0xffffU) | static_cast<uint32_t>(b) << 16;
  }
  // The scale of a group whose largest magnitude has these bits, and its reciprocal (ActivationWriter). K formats get
  // one per 32 values, too, or per slice: a block does not have 256.
  static __device__ __forceinline__ float2 quantization(uint32_t bits) {
    constexpr float kSmallest = 1e-30F;
    const float largest = __uint_as_float(bits);
    if (largest < kSmallest) return make_float2(0, 0);
    return make_float2(largest * (1.0F / 127.0F), __fdividef(127.0F, largest));
  }

  // ---- results of the first product

  // Results of a token from `index` on to block `to`.
  template <typename V>
  __device__ __forceinline__ void send_result(int to, int of_token, int index, V v) const {
    const uint32_t there = address_in(base, to);
    send(there + At::kReceived + of_token * At::kReceivedBytes + index * 4, v, there + At::kResults * 8);
  }
  // The same to every fourth block, from this lane's on.
  template <typename V>
  __device__ __forceinline__ void send_results(int of_token, int index, V v) const {
#pragma unroll
    for (int to = 0; to < kLayerBlocks; to += 4) send_result(to + lane % 4, of_token, index, v);
  }
  // One result of each lane, of index `index` and the lane's token: those of adjacent indices are kTokens lanes apart.
  // Whole warps; each lane sends four results to two blocks.
  __device__ __forceinline__ void send_quads(int of_token, int index, float v) const {
    const float near = __shfl_xor_sync(kFullMask, v, kTokens);
    const float2 mine = index % 2 == 0 ? make_float2(v, near) : make_float2(near, v);
    const float2 far =
        make_float2(__shfl_xor_sync(kFullMask, mine.x, 2 * kTokens), __shfl_xor_sync(kFullMask, mine.y, 2 * kTokens));
    const bool upper = index % 4 >= 2;
    const float2 low = upper ? far : mine;
    const float2 high = upper ? mine : far;
#pragma unroll
    for (int to = 0; to < kLayerBlocks; to += 4) {
      send_result(to + index % 4, of_token, index - index % 4, make_float4(low.x, low.y, high.x, high.y));
    }
  }
};

#endif

}  // namespace inferno::cuda
