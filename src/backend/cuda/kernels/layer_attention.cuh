// Attention of one query head over the positions of a warp, as a part of the cluster's (layer_half.cuh).
//
// The first kNearPositions of a sequence are near: four of each warp, which it has in registers before
// wait_for_previous(); of several tokens, which share the cluster's warps, as many times four as there are tokens, the
// others later. The rest is far: a run of tiles of 16 positions of each block, its warps' in turn, on tensor
// cores (head_softmax.cuh). Bulk copies bring them into shared memory once the first weights have been read, whose
// place they take: two kernels that share a multiprocessor leave no other.
#pragma once

#include "backend/cuda/kernels/head_softmax.cuh"
#include "backend/cuda/kernels/layer_half.cuh"

namespace inferno::cuda {

inline constexpr int kNearTile = 4;  // positions of a warp
inline constexpr int kNearPositions = kLayerBlocks * kLayerWarps * kNearTile;
__host__ __device__ constexpr int near_span(int tokens) {  // from a warp's near tile to its next
  return kNearPositions / tokens;
}

struct AttentionParams {
  HalfParams half;
  HeadNorms norms;
  const float* rope = nullptr;
  KvLayerView kv;
  StepBatch batch;
  float scale = 1;
  int page_shift = 0;  // the page size is a power of two
  CUtensorMap k, v;    // boxes of kTile positions
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// The cache of one sequence and kv head.
struct HeadCache {
  const KvLayerView& kv;
  const int32_t* table;
  int head, shift, count;

  // Of the position's page; 0 where there is none.
  [[nodiscard]] __device__ __forceinline__ int page_of(int position) const {
    return position < count ? __ldcg(table + (position >> shift)) : 0;
  }
  // Elements before row `within` of a page.
  [[nodiscard]] __device__ __forceinline__ int64_t row(int page, int within) const {
    return (((int64_t{page} * kLayerKvHeads + head) << shift) + within) * kLayerHeadDim;
  }
  [[nodiscard]] __device__ __forceinline__ int within(int position) const { return position & (kv.page_size - 1); }
};

// A warp's near positions. Lane l has 16 elements of the key of position l / 8: 8 (l % 8) .. and 64 + 8 (l % 8) ..;
// and elements 4 l .. of all four values.
struct NearTile {
  uint4 key[2];
  uint2 value[kNearTile];

  template <typename T>
  __device__ __forceinline__ void load(const HeadCache& cache, int page, int first, int lane) {
    const int last = cache.count - 1 - first;  // positions beyond it repeat it; their weight is zero
    if (last < 0) return;
    const int64_t row = cache.row(page, cache.within(first));
    const T* k = static_cast<const T*>(cache.kv.k) + row + min(lane / 8, last) * kLayerHeadDim + lane % 8 * 8;
    key[0] = load_fresh_16(k);
    key[1] = load_fresh_16(k + 64);
    const T* v = static_cast<const T*>(cache.kv.v) + row + lane * 4;
#pragma unroll
    for (int i = 0; i < kNearTile; ++i) {
      value[i] = __ldcg(reinterpret_cast<const uint2*>(v + min(i, last) * kLayerHeadDim));
    }
  }
};

// One query head over some of the positions; lane l has elements 4 l .. of the values' sum.
template <typename T>
struct HeadPart {
  float high = -INFINITY;  // the largest score, in units of log2
  float sum = 0;           // of the weights
  float4 value = {};

  // Lane l gets the score of position l / 8.
  static __device__ __forceinline__ float score(const float* q, const uint4 (&key)[2]) {
    const uint32_t words[8] = {key[0].x, key[0].y, key[0].z, key[0].w, key[1].x, key[1].y, key[1].z, key[1].w};
    float even = 0;
    float odd = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float2 k = widen_pair<T>(words[i]);
      even = fmaf(q[2 * i], k.x, even);
      odd = fmaf(q[2 * i + 1], k.y, odd);
    }
    float score = even + odd;
#pragma unroll
    for (int step = 1; step < 8; step *= 2) score += __shfl_xor_sync(kFullMask, score, step);
    return score;
  }
  static __device__ __forceinline__ float4 widened(uint2 value) {
    const float2 a = widen_pair<T>(value.x);
    const float2 b = widen_pair<T>(value.y);
    return make_float4(a.x, a.y, b.x, b.y);
  }
  // Returns by what a part with maximum `other` is to be multiplied, after this one.
  __device__ __forceinline__ float raise(float other) {
    const float highest = fmaxf(high, other);
    const float rescale = fast_exp2(high - highest);
    high = highest;
    sum *= rescale;
    value = make_float4(value.x * rescale, value.y * rescale, value.z * rescale, value.w * rescale);
    return fast_exp2(other - highest);
  }

  // The first: one position.
  __device__ __forceinline__ void start(const float* q, const uint4 (&key)[2], uint2 own) {
    high = score(q, key);
    sum = 1;
    value = widened(own);
  }
  // Positions from `count` on do not exist; one does.
  __device__ __forceinline__ void add(const float* q, const NearTile& t, int count, int lane) {
    float s = score(q, t.key);
    if (lane / 8 >= count) s = -INFINITY;
    float highest = fmaxf(s, __shfl_xor_sync(kFullMask, s, 8));
    highest = fmaxf(highest, __shfl_xor_sync(kFullMask, highest, 16));
    raise(highest);
    const float weight = fast_exp2(s - high);
#pragma unroll
    for (int i = 0; i < kNearTile; ++i) {
      const float w = __shfl_sync(kFullMask, weight, i * 8);
      sum += w;
      value = fma4(w, widened(t.value[i]), value);
    }
  }
  __device__ __forceinline__ void add(float other_high, float other_sum, float4 other) {
    const float share = raise(other_high);
    sum = fmaf(share, other_sum, sum);
    value = fma4(share, other, value);
  }
};

// A warp's far positions: one tile of keys and one of values at a time, each two boxes of 64 columns, whose pieces of
// 16 bytes are swizzled (tensor_map.cuh).
template <typename T, int kTokenWarps>
struct FarTiles {
  static constexpr int kSpan = kTokenWarps * kTile;  // from a warp's tile to its next
  static constexpr int kBox = kTile * 128;
  const AttentionParams& p;
  const HeadCache& cache;
  uint32_t place, barrier;  // 4 boxes; two barriers
  int lane;
  int first;      // of the warp's positions
  int end;        // of the block's
  int pages = 0;  // of 32 tiles, one of each lane
  int row = 0;    // of the tile that was requested last

  // Before the wait; `share`: which of the token's warps this is.
  __device__ __forceinline__ FarTiles(const AttentionParams& params, const HeadCache& c, uint32_t at, uint32_t full,
                                      int rank, int share, int lane_)
      : p(params), cache(c), place(at), barrier(full), lane(lane_) {
    const int tiles = (cache.count - kNearPositions + kTile - 1) / kTile;
    const int run = (tiles + kLayerBlocks - 1) / kLayerBlocks * kTile;
    first = kNearPositions + rank * run + share * kTile;
    end = min(kNearPositions + (rank + 1) * run, cache.count);
    if (first < end) pages = cache.page_of(first + lane * kSpan);
  }
  __device__ __forceinline__ void request_keys(int index) {
    const int at = first + index * kSpan;
    if (at >= end) return;
    if (index % kWarp == 0 && index != 0) pages = cache.page_of(at + lane * kSpan);
    const int page = __shfl_sync(kFullMask, pages, index % kWarp);
    row = ((page * kLayerKvHeads + cache.head) << cache.shift) + cache.within(at);
    if (lane == 0) request(&p.k, place, barrier);
  }
  // After its keys.
  __device__ __forceinline__ void request_values(int index) {
    if (lane == 0 && first + index * kSpan < end) request(&p.v, place + 2 * kBox, barrier + 8);
  }
  __device__ __forceinline__ void request(const CUtensorMap* map, uint32_t to, uint32_t full) const {
    arrive_expecting(full, 2 * kBox);
    copy_box(to, map, 0, row, full);
    copy_box(to + kBox, map, 64, row, full);
  }
  // Once nothing else uses the place.
  __device__ __forceinline__ void open() {
    request_keys(0);
    request_values(0);
  }
  // Piece i (8 columns) of a row of keys or values.
  static __device__ __forceinline__ uint32_t piece(uint32_t from, int position, int i) {
    return from + i / 8 * kBox + position * 128 + (i % 8 ^ position % 8) * 16;
  }
  // After open(). Lane l has elements 8 (l % 8) .. and 64 + 8 (l % 8) .. of the query; `scratch`: 512 bytes.
  __device__ __forceinline__ void add_to(HeadPart<T>& part, const float* q, uint8_t* scratch) {
    const int g = lane / 4;
    const int c = lane % 4;
    if (lane < 8) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<uint4*>(scratch + half * 128 + lane * 16) = make_uint4(
            narrow_pair<T>(q[half * 8], q[half * 8 + 1]), narrow_pair<T>(q[half * 8 + 2], q[half * 8 + 3]),
            narrow_pair<T>(q[half * 8 + 4], q[half * 8 + 5]), narrow_pair<T>(q[half * 8 + 6], q[half * 8 + 7]));
      }
    }
    __syncwarp();
    uint32_t query[16];  // the one column of the second operand that is not zero
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint32_t word = reinterpret_cast<const uint32_t*>(scratch)[i * 4 + c];
      query[i] = g == 0 ? word : 0;
    }
    float o[8][4] = {};  // columns 16 m + g and 16 m + 8 + g
    HeadSoftmax softmax;
#pragma unroll 1
    for (int i = 0; first + i * kSpan < end; ++i) {
      float even[4] = {};
      float odd[4] = {};
      uint32_t a[4];
      wait_barrier(barrier, i % 2);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        load_matrices(a, piece(place, lane % 16, 2 * j + lane / 16));
        mma<T>(j % 2 == 0 ? even : odd, a[0], a[1], a[2], a[3], query[2 * j], query[2 * j + 1]);
      }
      __syncwarp();
      request_keys(i + 1);
      const int left = end - first - i * kSpan;
      float score[4];  // positions g, g, g + 8, g + 8
#pragma unroll
      for (int n = 0; n < 4; ++n) score[n] = g + n / 2 * 8 < left ? even[n] + odd[n] : -INFINITY;
      uint32_t weights[2];
      const float2 rescale = softmax.template add<T>(score, weights);
      // Values beyond the last position may be anything, and zero times that is not zero.
      const auto exist = [&](int position) {
        return position + 1 < left ? 0xffffffffU : position < left ? 0xffffU : 0;
      };
      const uint32_t above = exist(2 * c);
      const uint32_t below = exist(2 * c + 8);
      wait_barrier(barrier + 8, i % 2);
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        load_matrices_transposed(a, piece(place + 2 * kBox, lane % 8 + lane / 16 * 8, 2 * m + lane / 8 % 2));
        HeadSoftmax::multiply<T>(o[m], rescale, a[0] & above, a[1] & above, a[2] & below, a[3] & below, weights);
      }
      __syncwarp();
      request_values(i + 1);
    }
    softmax.finish();
    auto* sums = reinterpret_cast<float*>(scratch);
    if (c == 0) {
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        sums[m * 16 + g] = o[m][0];
        sums[m * 16 + 8 + g] = o[m][2];
      }
    }
    __syncwarp();
    part.add(__shfl_sync(kFullMask, softmax.high[0], 0), __shfl_sync(kFullMask, softmax.sum[0], 0),
             *reinterpret_cast<const float4*>(sums + lane * 4));
  }
};

// (high, sum) of some parts; the largest high.
template <int kCount>
struct HeadShares {
  float2 part[kCount];
  float high = -INFINITY;

  __device__ __forceinline__ explicit HeadShares(uint32_t at) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      part[i] = load_shared_float2(at + i * 8);
      high = fmaxf(high, part[i].x);
    }
  }
  // Of a part without positions 0, unless all are.
  [[nodiscard]] __device__ __forceinline__ float share(int i) const {
    return high == -INFINITY ? 0.0F : fast_exp2(part[i].x - high);
  }
};

#endif

}  // namespace inferno::cuda
