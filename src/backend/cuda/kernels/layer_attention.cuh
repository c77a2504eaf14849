// Attention of one query head over the positions of a warp, as a part of the cluster's (layer_half.cuh).
//
// The first kNearPositions of a sequence are near: four of each warp, which it has in registers before
// wait_for_previous(). The rest is far: tiles of 16 positions, one of each warp of the cluster in turn, on tensor cores
// (head_softmax.cuh). They are requested into L2 before the wait, and copied into shared memory once the first weights
// have been read, whose place they take: two kernels that share a multiprocessor leave no other.
#pragma once

#include "backend/cuda/kernels/decode_tile.cuh"
#include "backend/cuda/kernels/head_softmax.cuh"
#include "backend/cuda/kernels/layer_half.cuh"

namespace inferno::cuda {

inline constexpr int kNearTile = 4;  // positions of a warp
inline constexpr int kNearPositions = kLayerBlocks * kLayerWarps * kNearTile;
inline constexpr int kFarSpan = kLayerBlocks * kLayerWarps * kTile;  // from a warp's far tile to its next
// Far tiles of a warp that are requested into L2 ahead: more would evict what is needed earlier.
inline constexpr int kFarAhead = 5;

struct AttentionParams {
  HalfParams half;
  HeadNorms norms;
  const float* rope = nullptr;
  KvLayerView kv;
  StepBatch batch;
  float scale = 1;
  int page_shift = 0;  // the page size is a power of two
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
  __device__ __forceinline__ void load(const HeadCache& cache, int first, int lane) {
    const int last = cache.count - 1 - first;  // positions beyond it repeat it; their weight is zero
    if (last < 0) return;
    const int64_t row = cache.row(cache.page_of(first), cache.within(first));
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

// A warp's far positions.
template <typename T>
struct FarTiles {
  using Tile = WarpTile<T, kLayerHeadDim>;
  const HeadCache& cache;
  Tile tile;
  int first;      // of the warp's positions
  int pages = 0;  // of 32 tiles, one of each lane
  int64_t base = 0;

  // `place`: Tile::kBytes of shared memory. Before the wait; `values`: those, not keys, are requested.
  __device__ __forceinline__ FarTiles(const HeadCache& c, uint8_t* place, int index, bool values, int lane)
      : cache(c), tile{place + lane * 16, lane}, first(kNearPositions + index * kTile) {
    if (first >= cache.count) return;
    const int at = first + lane * kFarSpan;
    pages = cache.page_of(at);
    if (lane < kFarAhead && at < cache.count) {
      const T* from = static_cast<const T*>(values ? cache.kv.v : cache.kv.k) + cache.row(pages, cache.within(at));
      asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from),
                   "n"(kTile * kLayerHeadDim * static_cast<int>(sizeof(T))));
    }
  }
  // One group of copies each, empty after the last tile.
  __device__ __forceinline__ void prefetch_keys(int index) {
    const int at = first + index * kFarSpan;
    if (at < cache.count) {
      if (index % kWarp == 0 && index != 0) pages = cache.page_of(at + tile.lane * kFarSpan);
      base = cache.row(__shfl_sync(kFullMask, pages, index % kWarp), cache.within(at));
      tile.prefetch_keys(cache.kv, base, cache.count - 1 - at);
    }
    commit_copies();
  }
  __device__ __forceinline__ void prefetch_values(int index) {
    const int at = first + index * kFarSpan;
    if (at < cache.count) tile.prefetch_values(cache.kv, base, cache.count - 1 - at);
    commit_copies();
  }
  // Once nothing else uses the place.
  __device__ __forceinline__ void open() {
    prefetch_keys(0);
    prefetch_values(0);
  }
  // After open(). Lane l has elements 8 (l % 8) .. and 64 + 8 (l % 8) .. of the query.
  __device__ __forceinline__ void add_to(HeadPart<T>& part, const float* q) {
    const int lane = tile.lane;
    const int g = lane / 4;
    uint4 query[4];  // the one column of the second operand that is not zero: lane c has 32 j + 8 c ..
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t near[4];
      uint32_t far[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t word = narrow_pair<T>(q[half * 8 + 2 * i], q[half * 8 + 2 * i + 1]);
        const uint32_t other = __shfl_down_sync(kFullMask, word, 4);
        near[i] = g == 0 ? word : 0;
        far[i] = g == 0 ? other : 0;
      }
      query[2 * half] = make_uint4(near[0], near[1], near[2], near[3]);
      query[2 * half + 1] = make_uint4(far[0], far[1], far[2], far[3]);
    }
    float o[2][4][4] = {};  // columns 64 h + 8 g + 2 m and the next
    HeadSoftmax softmax;
#pragma unroll 1
    for (int i = 0; first + i * kFarSpan < cache.count; ++i) {
      float even[4] = {};
      float odd[4] = {};
      wait_copies<1>();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint4 near = tile.keys(0, j);
        const uint4 far = tile.keys(1, j);
        mma<T>(even, near.x, far.x, near.y, far.y, query[j].x, query[j].y);
        mma<T>(odd, near.z, far.z, near.w, far.w, query[j].z, query[j].w);
      }
      prefetch_keys(i + 1);
      const int left = cache.count - first - i * kFarSpan - g;
      float score[4];  // positions g, g, g + 8, g + 8
#pragma unroll
      for (int n = 0; n < 4; ++n) score[n] = n / 2 * 8 < left ? even[n] + odd[n] : -INFINITY;
      uint32_t weights[2];
      const float2 rescale = softmax.template add<T>(score, weights);
      wait_copies<1>();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 v[4] = {tile.values(h, 0), tile.values(h, 1), tile.values(h, 2), tile.values(h, 3)};
        // Two columns of the lane's eight, each as pairs of two positions.
        const auto multiply = [&](float(&to)[4], uint32_t v0, uint32_t v1, uint32_t v2, uint32_t v3) {
          HeadSoftmax::multiply<T>(to, rescale, __byte_perm(v0, v1, 0x5410U), __byte_perm(v0, v1, 0x7632U),
                                   __byte_perm(v2, v3, 0x5410U), __byte_perm(v2, v3, 0x7632U), weights);
        };
        multiply(o[h][0], v[0].x, v[1].x, v[2].x, v[3].x);
        multiply(o[h][1], v[0].y, v[1].y, v[2].y, v[3].y);
        multiply(o[h][2], v[0].z, v[1].z, v[2].z, v[3].z);
        multiply(o[h][3], v[0].w, v[1].w, v[2].w, v[3].w);
      }
      prefetch_values(i + 1);
    }
    softmax.finish();
    __syncwarp();  // all lanes have read their last tile
    auto* sums = reinterpret_cast<float*>(const_cast<uint8_t*>(tile.first) - lane * 16);
    if (lane % 4 == 0) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int m = 0; m < 4; m += 2) {
          *reinterpret_cast<float4*>(sums + h * 64 + g * 8 + m * 2) =
              make_float4(o[h][m][0], o[h][m][2], o[h][m + 1][0], o[h][m + 1][2]);
        }
      }
    }
    __syncwarp();
    part.add(__shfl_sync(kFullMask, softmax.high[0], 0), __shfl_sync(kFullMask, softmax.sum[0], 0),
             *reinterpret_cast<const float4*>(sums + lane * 4));
  }
};

// (high, sum) of eight parts; the largest high.
struct EightParts {
  float2 part[8];
  float high = -INFINITY;

  __device__ __forceinline__ explicit EightParts(uint32_t at) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
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
