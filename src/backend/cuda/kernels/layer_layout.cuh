// The shared memory of layer_half.cuh's blocks, and the parameters of its kernels.
#pragma once

#include <cuda.h>

#include "backend/cuda/kernels/decode_tile.cuh"
#include "backend/cuda/kernels/layer_task.h"
#include "backend/cuda/kernels/slice_tile.cuh"
#include "backend/cuda/kernels/stream_activations.cuh"

namespace inferno::cuda {

inline constexpr int kLayerBlocks = 8;  // of a cluster
inline constexpr int kLayerWarps = 8;
inline constexpr int kLayerThreads = kLayerWarps * kWarp;
inline constexpr int kLayerSlice =
    kLayerWidth / kLayerBlocks;       // columns of the first exchange; rows of the second product
inline constexpr int kPieceRows = 8;  // that are requested together
inline constexpr int kQuarters = 4;   // of the second product's rows, requested together
inline constexpr int kQuarterRows = kLayerSlice / kQuarters;
inline constexpr int kMiddleGroups = 8;  // of the second product's input, padded

// Bytes of a row of some groups of 32 values in each plane.
__host__ __device__ constexpr RowBytes row_space(DType dtype, int groups) {
  const GroupBytes b = group_bytes(dtype);
  if (on_tensor_cores(dtype)) return {groups * 64, 0, 0, 0};
  return {groups * b.q, groups * b.h, groups * b.s, groups / 8 * b.d};
}
__host__ __device__ constexpr int round_128(int bytes) {
  return (bytes + 127) / 128 * 128;
}
__host__ __device__ constexpr int larger(int a, int b) {
  return a > b ? a : b;
}

// A box of the second weights: pairs of bytes as elements, since a box has at most 256 a row.
struct SliceMaps {
  CUtensorMap q, h, s;
};

struct HalfParams {
  LayerStream stream;
  const float* norm = nullptr;
  float eps = 0;
  Planes first[3];  // q, k, v or gate, up
  Planes second;    // o or down
  SliceMaps maps;   // of `second`
};

inline constexpr int kMostLayerBytes = 113 * 1024;  // of shared memory, with two blocks on a multiprocessor
inline constexpr int kLoneLayerBytes = 116 * 1024;  // of the MLP, so that no multiprocessor gets two of its blocks

// Where everything is in shared memory. F: of most weights; F2: of v or down.
template <DType F, DType F2, bool kAttention, int kTokens>
struct HalfLayout {
  static constexpr int kTokenWarps = kLayerWarps / kTokens;  // that have the same token
  static constexpr bool kTiles = on_tensor_cores(F);
  static constexpr DType kSecond = kAttention ? F : F2;
  // Clusters are placed whole, and a H200 has room for 30 with two blocks on each multiprocessor. With 12 of the MLP
  // beside 16 of attention none starts late, without its weights; a twelfth of 16-bit weights has no room there. One
  // or two tokens of these have 14, so large that no two of their blocks fit on a multiprocessor: so the weights of
  // both halves are spread over all, which then load them at the same rate.
  static constexpr int kClusters = kAttention ? kAttentionClusters : !kTiles ? 12 : kTokens <= 2 ? 14 : 16;
  static constexpr int kColumns =  // of a cluster; the last may have fewer
      kAttention ? kLayerHeadDim : (kLayerMiddle / kClusters + kGroup - 1) / kGroup * kGroup;
  static constexpr int kLastColumns = kAttention ? kColumns : kLayerMiddle - (kClusters - 1) * kColumns;
  static constexpr int kRows = kAttention ? 3 * kLayerHeadDim / kLayerBlocks : 2 * kColumns / kLayerBlocks;
  static constexpr int kPieces = kRows / kPieceRows;  // of the first product
  static constexpr int kGroups = kColumns / kGroup;
  static constexpr int kSecondWidth = kAttention ? kLayerHeads * kLayerHeadDim : kLayerMiddle;

  __host__ __device__ static constexpr int piece_bytes(DType dtype) {
    const RowBytes b = row_space(dtype, kLayerWidth / kGroup);
    return kPieceRows * (b.q + b.h + b.s + b.d);
  }
  // Four tokens of quantized weights are products of slice_tile.cuh, and two where that is faster: of Q4_K but for
  // attention with another type of v. Rows of the first weights (planes q and h) are then padded, those of the second
  // swizzled by the copy engine.
  static constexpr bool kSlicesOfTwo = F == DType::q4_k && (F2 == F || !kAttention);
  static constexpr bool kQuantTiles = !kTiles && (kTokens == 4 || (kTokens == 2 && kSlicesOfTwo));
  static constexpr bool kSliceScale = kQuantTiles && has_slice_scale(F);
  static_assert(has_slice_scale(F) == has_slice_scale(F2));
  static constexpr int kPad = kQuantTiles ? kRowPad : 0;
  __host__ __device__ static constexpr int piece_space(DType dtype) {
    return piece_bytes(dtype) + kPieceRows * kPad * (group_bytes(dtype).h != 0 ? 2 : 1);
  }
  static constexpr int kPieceBytes = round_128(larger(piece_space(F), piece_space(F2)));

  // A quarter of the block's rows of the second weights: the cluster's columns of q (8 bits: both halves of the groups
  // one after another) and h; of scales as many bytes from a multiple of 16 on as always include them, because a box
  // begins there; whole rows of plane d.
  static constexpr RowBytes kSlice = row_space(kSecond, kGroups);
  static constexpr int kBox = kSecond == DType::q8_0 ? kSlice.q / 2 : kSlice.q;  // bytes of a row of q
  __host__ __device__ static constexpr uint32_t swizzle_of(int bytes) {
    return !kQuantTiles || bytes == 0 ? 0 : bytes == 64 ? 0x30 : 0x70;
  }
  static constexpr uint32_t kSwizzle = swizzle_of(kBox);
  static constexpr uint32_t kHighSwizzle = swizzle_of(kSlice.h);
  static_assert(!kQuantTiles || kBox == 64 || kBox == 128);
  static_assert(kHighSwizzle == 0 || kSlice.h == 64 || kSlice.h == 128);
  static constexpr int kScaleBytes = kTiles ? 0 : 16;
  static constexpr int kSuperBytes = kTiles ? 0 : row_space(kSecond, kSecondWidth / kGroup).d;
  static constexpr int kQuarterH = kQuarterRows * kSlice.q;
  static constexpr int kQuarterS = kQuarterH + kQuarterRows * kSlice.h;
  static constexpr int kQuarterD = kQuarterS + kQuarterRows * kScaleBytes;
  static constexpr int kQuarterUsed = kQuarterD + kQuarterRows * kSuperBytes;
  static constexpr int kQuarterBytes = round_128(kQuarterUsed);

  // Barriers: what is received; pieces and quarters; keys and values of each warp.
  enum Barrier {
    kRow,
    kResults,
    kParts,
    kFull,
    kFarFull = kFull + kPieces + kQuarters,
    kBarriers = kFarFull + (kAttention ? 2 * kLayerWarps : 0)
  };
  // What is per token is [kTokens][...]. Two blocks have to fit beside each other, so places are used again:
  // - Once a block has received all results, all warps of all blocks are done with the row, its sums and the first
  //   weights. So parts of attention take the place of the row, tiles of the cache that of the first weights, and the
  //   middle of the MLP of several tokens that of the row.
  // - Sums of slice_tile.cuh take the place of the row, after a barrier.
  // - Four tokens, and two of 16-bit weights: results take the place of what was added, 16-bit weights' sums that of
  // the
  //   row, each after a barrier of its own; the parts of attention that of the tiles of the cache, after a barrier of
  //   the cluster, and those of a block's warps that of the row.
  static constexpr bool kTight = kTokens == 4 || (kTiles && kTokens == 2);
  static constexpr int kX = round_128(kBarriers * 8);
  static constexpr int kXBytes =  // of a token
      kTiles ? kLayerWidth * 2 : activation_bytes(Activation::quant32, 1) + kPad;
  // Into how many parts the columns of the first product are split between warps.
  static constexpr int kSplits = kQuantTiles && !kAttention ? 4 : kLayerWarps;
  static constexpr int kSumBytes = kRows * kSplits * 4;                                         // of a token
  static constexpr int kSquares = kX + kTokens * larger(kXBytes, kQuantTiles ? kSumBytes : 0);  // [kSquareCount]
  // 16-bit weights, one or two tokens: the MLP's second weights are held in registers, and a warp exchanges some
  // columns of its block's slice, with their sum of squares.
  static constexpr bool kHeld = kTiles && kTokens <= 2 && !kAttention;
  static constexpr bool kWarpColumns = kTiles && kTokens <= 2;
  static constexpr int kExchanged = kWarpColumns ? 32 : kLayerSlice;  // columns
  static constexpr int kSquareCount = kLayerWidth / kExchanged;       // of a token
  // Pieces of the first weights that are requested at a time. More would delay what the kernel before has to load; few
  // bytes do not.
  static constexpr bool kLargePieces = kPieceBytes >= 8 * 1024;
  static constexpr int kInFlight = kAttention && (kWarpColumns || (kTokens == 2 && kLargePieces)) ? 2 : kPieces;
  static constexpr int kSquaresEnd = kSquares + kTokens * kSquareCount * 4;
  static constexpr int kXEnd = kTiles && !kTight ? kSquaresEnd + kTokens * kSumBytes : kSquaresEnd;
  static constexpr int kHeadBytes = kLayerHeadDim * 4;
  static constexpr int kPartBytes = kLayerBlocks * kHeadBytes;  // of a token
  static constexpr int kAdded =
      round_128(larger(kXEnd, kAttention ? kX + (kTight ? 1 : kTokens) * (kPartBytes + kLayerBlocks * 8) : 0));
  static constexpr int kAddedEnd = kAdded + (kWarpColumns ? 0 : kLayerThreads * 16);
  // [kLayerWarps][kLayerHeadDim], then (high, sum) of each
  static constexpr int kWarpPart = kTight ? kX : kAddedEnd;
  static constexpr int kWarpSums = kWarpPart + kLayerWarps * kHeadBytes;
  static constexpr int kUsed =
      larger(kTight ? kAdded : kAddedEnd, kAttention && !kTight ? kWarpSums + kLayerWarps * 8 : 0);
  static constexpr int kMiddleBytes = kTiles ? kColumns * 2 : kMiddleGroups * 40 + kPad;  // the second product's input
  static constexpr bool kMiddleApart = kAttention || kTokens == 1;
  static constexpr int kMiddle = kMiddleApart ? round_128(kUsed) : kX;
  static constexpr int kReceived = round_128(kMiddleApart ? kMiddle + kTokens * kMiddleBytes : kUsed);
  static constexpr int kReceivedBytes = (kAttention ? 3 * kLayerHeadDim : kColumns) * 4;
  static constexpr int kHeads =  // norms of q and k
      larger(kReceived + kTokens * kReceivedBytes, kTight ? kAddedEnd : 0);
  // Rotation of each token's position, [kLayerHeadDim]; otherwise it is in registers.
  static constexpr bool kSharedTurns = kQuantTiles || kTokens == 2;
  static constexpr int kTurns = kHeads + (kAttention ? 2 * kHeadBytes : 0);
  // The second weights before the first; 16-bit: in their place.
  static constexpr int kSecondAt = round_128(kTurns + (kAttention && kSharedTurns ? kTokens * kHeadBytes : 0));
  static constexpr int kFirst = kTiles ? kSecondAt : kSecondAt + kQuarters * kQuarterBytes;
  static constexpr int kAfter = kFirst + kPieces * kPieceBytes;
  // Tiles of the cache take the first weights' place; swizzled boxes begin at multiples of 1024.
  static constexpr int kFar = ((kTiles ? kFirst + kQuarters * kQuarterBytes : kFirst) + 1023) / 1024 * 1024;
  static constexpr int kFarBytes = kTile * kLayerHeadDim * 2 * 2;  // of a warp: keys and values of 16 bits
  static constexpr int kBytes = kAttention ? larger(kAfter, kFar + kLayerWarps * kFarBytes) : kAfter;
  // What a block reserves. Of several tokens of quantized weights, too, the MLP's blocks are on as many multiprocessors
  // as there are of them.
  static constexpr int kReserved = !kAttention && !kTiles && kTokens > 1 ? larger(kBytes, kLoneLayerBytes) : kBytes;
  static_assert(kHeld || kBytes <= kMostLayerBytes);
  static_assert(!kHeld || kBytes > kMostLayerBytes);
  static_assert(!kTiles || kQuarters * kQuarterBytes <= kPieces * kPieceBytes);
  // 16-bit: of each token [kRows][kLayerWarps]; slice_tile.cuh: [kSplits][kRows][kTokens]
  static constexpr int kSums = kTight || kQuantTiles ? kX : kSquaresEnd;
  static constexpr int kPart = kTight ? kFar : kX;                // [kLayerBlocks][kLayerHeadDim]
  static constexpr int kPartSums = kPart + kTokens * kPartBytes;  // (high, sum) of each

  // Formats with an offset or minimum need the sums of their activations.
  __host__ __device__ static constexpr bool has_sums(DType dtype) {
    return level_offset(dtype) != 0 || group_bytes(dtype).d == 4 || group_bytes(dtype).s == 4;
  }
  static constexpr bool kHasSums = kQuantTiles ? kSliceScale : !kTiles && (has_sums(F) || has_sums(F2));
  static constexpr int kScales = kLayerWidth / (kSliceScale ? kSliceColumns : kGroup);
  static constexpr int kRowBytes =  // of a token's row, its squares included
      kSquareCount * 4 +
      (kTiles ? kLayerWidth * 2 : kLayerWidth + kScales * 4 + (kHasSums ? kLayerWidth / kGroup * 4 : 0));
};

}  // namespace inferno::cuda
