// The products of layer_half.cuh's blocks: first weights times the rows, second weights times the middle.
//
// 16-bit weights are multiplied on tensor cores, with columns for up to four tokens. So are quantized ones with several
// tokens (slice_tile.cuh); with one a lane has a group of 32 columns.
#pragma once

#include "backend/cuda/kernels/layer_half.cuh"

namespace inferno::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

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

// Sums of kValues values, a power of two, over groups of kLanes adjacent lanes: lane l of a group gets those from
// l * kValues / kLanes on; with fewer values than lanes, adjacent lanes get the same one.
template <int kLanes, int kValues>
__device__ __forceinline__ void spread_sums(float* v, int lane) {
  if constexpr (kLanes > 1) {
    constexpr int kStep = kLanes / 2;
    const bool upper = (lane & kStep) != 0;
    if constexpr (kValues > 1) {
#pragma unroll
      for (int i = 0; i < kValues / 2; ++i) {
        const float other = __shfl_xor_sync(kFullMask, upper ? v[i] : v[i + kValues / 2], kStep);
        v[i] = (upper ? v[i + kValues / 2] : v[i]) + other;
      }
    } else {
      v[0] += __shfl_xor_sync(kFullMask, v[0], kStep);
    }
    spread_sums<kStep, larger(kValues / 2, 1)>(v, lane);
  }
}

template <DType F, DType F2, bool kAttention, int kTokenCount>
struct HalfProducts : HalfBlock<F, F2, kAttention, kTokenCount> {
  using Block = HalfBlock<F, F2, kAttention, kTokenCount>;
  using Block::barrier, Block::base, Block::cluster, Block::kRequesting, Block::kTokens, Block::lane, Block::p,
      Block::columns, Block::pieces, Block::prefetch_second, Block::quarter, Block::rank, Block::shared, Block::warp;
  using Block::Block;
  using Block::magnitude, Block::packed_sums, Block::quantization;
  using typename Block::At;

  // ---- the first product

  // Quantized, up to two tokens: each token's results of the warp's rows row_of(0), row_of(1), ..., of which
  // attention's last two are v's; lane l has those of row l / 4.
  template <typename RowOf>
  __device__ __forceinline__ void multiply_rows(float (&results)[kTokens], RowOf row_of) const {
#pragma unroll 1
    for (int n = 0; n < At::kPieces; ++n) wait_barrier(barrier(At::kFull + n), 0);
    XGroup x[kTokens];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      x[t] = Part<F>::activations(shared + At::kX + t * At::kXBytes, kLayerWidth / kGroup, 0, lane);
    }
    constexpr int kWarpRows = At::kRows / kLayerWarps;
    float v[kTokens][8] = {};
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      float row[kTokens];
      if constexpr (kAttention && F != F2) {
        i >= 4 ? multiply_row<F2>(row_of(i), x, row) : multiply_row<F>(row_of(i), x, row);
      } else {
        multiply_row<F>(row_of(i), x, row);
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t) v[t][i] = row[t];
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) results[t] = warp_sum_8(v[t], lane);
  }
  template <DType T>
  __device__ __forceinline__ void multiply_row(int row, const XGroup (&x)[kTokens], float (&v)[kTokens]) const {
    Part<T> part;
    part.load(first_row<T>(row), row_space(T, kLayerWidth / kGroup), 0, lane);
    const auto unpacked = part.unpack();
#pragma unroll
    for (int t = 0; t < kTokens; ++t) v[t] = Part<T>::multiply(unpacked, x[t], 0);
  }
  // The planes of a row of the first weights.
  template <DType T>
  [[nodiscard]] __device__ __forceinline__ SharedRow first_row(int row) const {
    return piece_row<T>(row / kPieceRows, row % kPieceRows);
  }
  // Row r of a piece.
  template <DType T>
  [[nodiscard]] __device__ __forceinline__ SharedRow piece_row(int piece, int r) const {
    constexpr RowBytes kBytes = row_space(T, kLayerWidth / kGroup);
    constexpr int kRowH = kBytes.h == 0 ? 0 : kBytes.h + At::kPad;
    constexpr int kQ = kPieceRows * (kBytes.q + At::kPad);
    constexpr int kH = kQ + kPieceRows * kRowH;
    constexpr int kS = kH + kPieceRows * kBytes.s;
    const uint32_t at = base + At::kFirst + piece * At::kPieceBytes;
    return {at + r * (kBytes.q + At::kPad), at + kQ + r * kRowH, at + kH + r * kBytes.s, at + kS + r * kBytes.d};
  }

  // Several tokens of quantized weights: a warp has one slice of the columns of all tiles (attention), or two of every
  // other (MLP). A tile of attention has 16 rows, one of the MLP 8 of gate and 8 of up.
  static constexpr int kWarpSlices = kLayerWarps / At::kSplits;
  using Slice = SliceTokens<At::kSliceScale>;
  __device__ __forceinline__ void multiply_quantized() const {
    constexpr int kTileCount = At::kRows / 16;
    Slice x[kWarpSlices];
#pragma unroll
    for (int i = 0; i < kWarpSlices; ++i) {
      x[i].load(base + At::kX, At::kXBytes, kTokens, kLayerWidth / kGroup, first_slice() + i, lane);
    }
    __syncthreads();  // sums take the place of the rows
#pragma unroll 1
    for (int tile = warp / At::kSplits; tile < kTileCount; tile += kWarpSlices) {
      const int pieces[2] = {kAttention ? 2 * tile : tile, kAttention ? 2 * tile + 1 : kTileCount + tile};
      wait_barrier(barrier(At::kFull + pieces[0]), 0);
      wait_barrier(barrier(At::kFull + pieces[1]), 0);
      if (kAttention && F != F2 && tile == 2) {
        multiply_tile<F2>(tile, pieces, x);
      } else {
        multiply_tile<F>(tile, pieces, x);
      }
    }
    __syncthreads();
  }
  [[nodiscard]] __device__ __forceinline__ int first_slice() const { return warp % At::kSplits * kWarpSlices; }
  template <DType T>
  __device__ __forceinline__ void multiply_tile(int tile, const int (&pieces)[2], const Slice (&x)[kWarpSlices]) const {
    const SliceTile<T> t{lane};
    const int g = lane / 4;
    const SharedRow rows[2] = {piece_row<T>(pieces[0], g), piece_row<T>(pieces[1], g)};
    const uint32_t q = piece_row<T>(lane & 8 ? pieces[1] : pieces[0], lane % 8).q;
    float acc[4] = {};
#pragma unroll
    for (int i = 0; i < kWarpSlices; ++i) {
      t.add({q, {rows[0].h, rows[1].h}, {rows[0].s, rows[1].s}, {rows[0].d, rows[1].d}}, kLayerWidth / kGroup,
            first_slice() + i, x[i], acc);
    }
    const int column = lane % 4 * 2;
    if (column >= kTokens) return;
    uint8_t* sums = shared + At::kSums + warp % At::kSplits * kTokens * At::kRows * 4;
    if constexpr (kAttention) {  // [row][token]
      auto* at = reinterpret_cast<float*>(sums) + (tile * 16 + g) * kTokens + column;
      *reinterpret_cast<float2*>(at) = make_float2(acc[0], acc[1]);
      *reinterpret_cast<float2*>(at + 8 * kTokens) = make_float2(acc[2], acc[3]);
    } else {  // [row][token][gate, up]
      auto* at = reinterpret_cast<float*>(sums) + ((tile * 8 + g) * kTokens + column) * 2;
      *reinterpret_cast<float4*>(at) = make_float4(acc[0], acc[2], acc[1], acc[3]);
    }
  }
  // After multiply_quantized(): result i / kTokens of token i % kTokens; MLP: gate and up.
  [[nodiscard]] __device__ __forceinline__ auto sliced_result(int i) const {
    constexpr int kStride = kTokens * At::kRows * 4;
    const uint32_t at = base + At::kSums + i * (kAttention ? 4 : 8);
    if constexpr (kAttention) {
      float sum[2] = {};
#pragma unroll
      for (int w = 0; w < At::kSplits; ++w) sum[w % 2] += load_shared_float(at + w * kStride);
      return sum[0] + sum[1];
    } else {
      float2 sum[2] = {};
#pragma unroll
      for (int w = 0; w < At::kSplits; ++w) {
        const float2 v = load_shared_float2(at + w * kStride);
        sum[w % 2] = make_float2(sum[w % 2].x + v.x, sum[w % 2].y + v.y);
      }
      return make_float2(sum[0].x + sum[1].x, sum[0].y + sum[1].y);
    }
  }

  // 16-bit: each warp multiplies every eighth block of 32 columns of all rows, as TileMultiplier does; on return
  // result() has the rows. Columns 2 t and 2 t + 1 of the second operand are token t's: odd rows have the blocks in
  // another order, and use the second.
  __device__ __forceinline__ void multiply_16_bit() const {
    const int g = lane / 4;
    const int odd_row = g % 2;
    uint4 x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = load_shared_16(base + At::kX + operand_token() * At::kXBytes + ((warp + i * kLayerWarps) ^ odd_row) * 64 +
                            lane % 4 * 16);
    }
    if constexpr (At::kTight) __syncthreads();  // sums take the place of the rows
#pragma unroll 1
    for (int tile = 0; tile < (pieces() + 1) / 2; ++tile) {
      const bool whole = At::kPieces % 2 == 0 || 2 * tile + 1 < pieces();  // otherwise only the rows above
      const uint32_t above = base + At::kFirst + (tile * 16 + g) * kLayerWidth * 2 + lane % 4 * 16;
      const uint32_t below = above + (whole ? 8 * kLayerWidth * 2 : 0);
      float even[4] = {};
      float odd[4] = {};
      wait_barrier(barrier(At::kFull + 2 * tile), 0);
      if (whole) wait_barrier(barrier(At::kFull + 2 * tile + 1), 0);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = ((warp + i * kLayerWarps) ^ odd_row) * 64;
        const uint4 a = load_shared_16(above + at);
        const uint4 b = load_shared_16(below + at);
        mma<__nv_bfloat16>(even, a.x, b.x, a.y, b.y, x[i].x, x[i].y);
        mma<__nv_bfloat16>(odd, a.z, b.z, a.w, b.w, x[i].z, x[i].w);
      }
      if (lane % 4 < kTokens) {
        float* sums = reinterpret_cast<float*>(shared + At::kSums + lane % 4 * At::kSumBytes) +
                      (tile * 16 + g) * kLayerWarps + warp;
        sums[0] = odd_row == 0 ? even[0] + odd[0] : even[1] + odd[1];
        if (whole) sums[8 * kLayerWarps] = odd_row == 0 ? even[2] + odd[2] : even[3] + odd[3];
      }
    }
    __syncthreads();
    if (!At::kHeld && warp == kRequesting && lane == 0) prefetch_second();  // the first weights have been read
  }
  // The token of this lane's column of the second operand; columns that have none repeat the last.
  [[nodiscard]] __device__ __forceinline__ int operand_token() const { return min(lane / 8, kTokens - 1); }
  [[nodiscard]] __device__ __forceinline__ float result(int of_token, int row) const {
    const uint32_t at = base + At::kSums + of_token * At::kSumBytes + row * kLayerWarps * 4;
    const float4 a = load_shared_float4(at);
    const float4 b = load_shared_float4(at + 16);
    return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
  }

  // ---- the second product

  // Columns 128 * slice + 4 * lane of a token's input and the next three (slice_tile.cuh).
  __device__ __forceinline__ void put_slice(int of_token, int slice, float4 v) const {
    uint8_t* x = shared + At::kMiddle + of_token * At::kMiddleBytes;
    const int column = slice * kSliceColumns + lane * 4;
    const auto levels = Block::quantized(v);
    const auto put = [](uint8_t* to, uint32_t word) { *reinterpret_cast<uint32_t*>(to) = word; };
    Block::put_levels(levels, x, column, kMiddleGroups, put);
    if constexpr (At::kHasSums) {
      const uint32_t sums = Block::sums_of(levels);
      if (column % kGroup == 0) put(x + kMiddleGroups * 36 + column / kGroup * 4, sums);
    }
  }
  // Value `column` of a token's input, one per lane of a warp with a whole group.
  __device__ __forceinline__ void put_middle(int of_token, int column, float v) const {
    uint8_t* x = shared + At::kMiddle + of_token * At::kMiddleBytes;
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

  // Second weights in registers: lane l has 16 bytes of each group of rows l / 4 and 8 + l / 4 of the warp's. They come
  // through shared memory, since loads of the other kernel on the multiprocessor would queue behind so many.
  struct Held {
    uint4 above[At::kGroups], below[At::kGroups];
  };
  // All threads; then the first weights, which take the same place, are requested: rows from `begin` on.
  __device__ __forceinline__ void hold_second(Held& held, int begin) const {
    const uint32_t above = second_rows() + lane / 4 * At::kSlice.q + lane % 4 * 16;
    const uint32_t below = above + 8 * At::kSlice.q;
    wait_barrier(barrier(At::kFull + At::kPieces + warp / 2), 0);
#pragma unroll
    for (int i = 0; i < At::kGroups; ++i) {
      held.above[i] = load_shared_16(above + i * 64);
      held.below[i] = load_shared_16(below + i * 64);
    }
    __syncthreads();
    if (warp == kRequesting && lane == 0) Block::prefetch_middle(begin);
  }
  __device__ __forceinline__ void multiply_held(const Held& held) const {
    float even[4] = {};
    float odd[4] = {};
#pragma unroll
    for (int i = 0; i < At::kGroups; ++i) {
      const uint4 x = load_shared_16(base + At::kMiddle + operand_token() * At::kMiddleBytes + i * 64 + lane % 4 * 16);
      mma<__nv_bfloat16>(even, held.above[i].x, held.below[i].x, held.above[i].y, held.below[i].y, x.x, x.y);
      mma<__nv_bfloat16>(odd, held.above[i].z, held.below[i].z, held.above[i].w, held.below[i].w, x.z, x.w);
    }
    if (lane % 4 < kTokens) {  // the token's
      float* out =
          p.stream.parts_out + (cluster * kTokens + lane % 4) * kLayerWidth + rank * kLayerSlice + warp * kWarpRows;
      out[lane / 4] = even[0] + odd[0];
      out[lane / 4 + 8] = even[2] + odd[2];
    }
  }
  // The warp's rows of the second weights.
  static constexpr int kWarpRows = kLayerSlice / kLayerWarps;
  [[nodiscard]] __device__ __forceinline__ uint32_t second_rows() const {
    return quarter(warp / 2) + warp % 2 * kWarpRows * At::kSlice.q;
  }

  // The block's rows of the second product, which it stores; after put_middle() and a barrier.
  __device__ __forceinline__ void multiply_second() const {
    constexpr int kWarpRows = kLayerSlice / kLayerWarps;
    const int q = warp / 2;
    const int first = warp % 2 * kWarpRows;
    float* out = p.stream.parts_out + cluster * kTokens * kLayerWidth + rank * kLayerSlice + warp * kWarpRows;
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
        const uint4 x = load_shared_16(base + At::kMiddle + operand_token() * At::kMiddleBytes + at + lane % 4 * 16);
        const uint4 a = load_shared_16(above + at);
        const uint4 b = load_shared_16(below + at);
        mma<__nv_bfloat16>(even, a.x, b.x, a.y, b.y, x.x, x.y);
        mma<__nv_bfloat16>(odd, a.z, b.z, a.w, b.w, x.z, x.w);
      }
      if (lane % 4 < kTokens) {
        out += lane % 4 * kLayerWidth;
        out[g] = odd_row == 0 ? even[0] + odd[0] : even[1] + odd[1];
        out[g + 8] = odd_row == 0 ? even[2] + odd[2] : even[3] + odd[3];
      }
    } else if constexpr (At::kQuantTiles) {
      multiply_second_tile(quarter(q), first, out);
    } else {
      constexpr int kStep = kWarp / At::kGroups;  // rows at a time, a lane has one group
      constexpr int kSteps = kWarpRows / kStep;
      const int g = lane % At::kGroups;
      XGroup x[kTokens];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        x[t] = XQuant{shared + At::kMiddle + t * At::kMiddleBytes, kMiddleGroups}.group(g);
      }
      float sums[kSteps * kTokens];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        float row[kTokens];
        multiply_group(quarter(q), first + i * kStep + lane / At::kGroups, g, x, row);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) sums[t * kSteps + i] = row[t];
      }
      // Lane g of a row gets the sums from g * kLeft on, or lanes that differ in the lowest bits all get one.
      constexpr int kLeft = larger(kSteps * kTokens / At::kGroups, 1);
      constexpr int kSame = larger(At::kGroups / (kSteps * kTokens), 1);
      spread_sums<At::kGroups, kSteps * kTokens>(sums, lane);
#pragma unroll
      for (int i = 0; i < kLeft; ++i) {
        const int n = g / kSame * kLeft + i;
        if (g % kSame == 0) out[n / kSteps * kLayerWidth + n % kSteps * kStep + lane / At::kGroups] = sums[i];
      }
    }
  }
  // Group g of the cluster's columns of a row, times each token's.
  __device__ __forceinline__ void multiply_group(uint32_t slice, int row, int g, const XGroup (&x)[kTokens],
                                                 float (&v)[kTokens]) const {
    // As many groups as there are from the one half to the other.
    constexpr RowBytes kRowBytes = {0, 0, kSecondGroups * group_bytes(At::kSecond).s, 0};
    SharedRow at = second_row(slice, row);
    at.d += (cluster * At::kGroups % 8 + g) / 8 * group_bytes(At::kSecond).d;
    Part<At::kSecond> part;
    part.load(at, kRowBytes, 0, g);
    const auto unpacked = part.unpack();
#pragma unroll
    for (int t = 0; t < kTokens; ++t) v[t] = Part<At::kSecond>::multiply(unpacked, x[t], 0);
  }
  // Values 0..15 of all groups of a row of 8 bits come before the others of all rows.
  static constexpr int kSecondGroups = At::kSecond == DType::q8_0 ? kQuarterRows * At::kBox / 16 : At::kGroups;
  // The planes of a row of the second weights, from the cluster's first group on.
  [[nodiscard]] __device__ __forceinline__ SharedRow second_row(uint32_t slice, int row) const {
    return {slice + row * At::kBox, slice + At::kQuarterH + row * At::kSlice.h,
            slice + At::kQuarterS + row * At::kScaleBytes + cluster * At::kSlice.s % 16,
            slice + At::kQuarterD + row * At::kSuperBytes + cluster * At::kGroups / 8 * group_bytes(At::kSecond).d};
  }
  // Several tokens of quantized weights: 16 rows of a quarter.
  __device__ __forceinline__ void multiply_second_tile(uint32_t slice, int first, float* out) const {
    using Tile = SliceTile<At::kSecond>;
    const Tile t{lane};
    const int g = lane / 4;
    const SharedRow rows[2] = {second_row(slice, first + g), second_row(slice, first + 8 + g)};
    const typename Tile::Rows at = {
        second_row(slice, first + lane % 16).q, {rows[0].h, rows[1].h}, {rows[0].s, rows[1].s}, {rows[0].d, rows[1].d}};
    float acc[4] = {};
#pragma unroll
    for (int i = 0; i < At::kGroups / kSliceGroups; ++i) {
      typename Tile::Tokens x;
      x.load(base + At::kMiddle, At::kMiddleBytes, kTokens, kMiddleGroups, i, lane);
      t.template add<At::kSwizzle, At::kHighSwizzle>(at, kSecondGroups, i, x, acc);
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int column = lane % 4 * 2 + n % 2;
      if (column < kTokens) out[column * kLayerWidth + n / 2 * 8 + g] = acc[n];
    }
  }
};

#endif

}  // namespace inferno::cuda
