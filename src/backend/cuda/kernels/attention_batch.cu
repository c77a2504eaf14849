// Attention of many sequences with one token each: persistent blocks, a few per multiprocessor, that loop over (token,
// kv head) pairs.
//
// One producer thread keeps TMA copies of tiles of 64 positions of K and V in flight, across pairs; the cache of
// earlier steps is read before wait_for_previous(). Four consumer warps compute the pair's heads from the raw
// projections (QK-norm, rotation, the new rows of the cache); each processes 16 positions of every tile with its own
// running maximum and sum (head_softmax.cuh), and the four are merged at the end.
//
// Beside the attention of prompts (kReady) the heads are ready: queries in the cache's type, keys and values in the
// cache. The kernel before is that attention; it lets this one start when the heads are there, and this one ends after
// it, so that the next kernel waits for both.
#include "backend/cuda/kernels/head_softmax.cuh"
#include "backend/cuda/kernels/heads.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tensor_map.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

namespace inferno::cuda {
namespace {

constexpr int kWarps = 4;  // consumers; one more warp is the producer
constexpr int kComputing = kWarps * kWarp;
constexpr int kTile = kMapRows;
constexpr int kTailRows = 16;
constexpr int kTileRow = 128;  // bytes of a row of a tile: 64 values
constexpr int kMaxGroup = 8;   // query heads per kv head
constexpr float kLog2e = 1.4426950408889634F;

struct Params {
  DecodeAttention a;
  int tokens = 0;              // the first of the batch
  CUtensorMap k, v;            // boxes of kTile rows
  CUtensorMap k_tail, v_tail;  // boxes of kTailRows rows, for the last tile of a sequence
};

// Shared memory; `group` query heads.
template <int kDim, int kStages>
struct Layout {
  static constexpr int kMatrix = kTile * kDim * 2;  // K or V of a stage: [half][64 rows]
  static constexpr int kQueries = 2 * kStages * kMatrix;
  static constexpr int kOwn = kQueries + kMaxGroup * kDim * 2;  // the new key and value, f32
  static constexpr int kRowMaxima = kOwn + 2 * kDim * 4;        // [warp + 1][head]
  static constexpr int kRowSums = kRowMaxima + (kWarps + 1) * kMaxGroup * 4;
  static constexpr int kBarriers = kRowSums + (kWarps + 1) * kMaxGroup * 4;
  static constexpr int kSums = kBarriers + 2 * kStages * 8;  // [warp + 1][group][dim] f32
  [[nodiscard]] static int bytes(int group) { return kSums + (kWarps + 1) * group * kDim * 4 + 1024; }
};

__device__ __forceinline__ uint32_t swizzled(int row, int piece) {
  return static_cast<uint32_t>(piece / 8 * kTile * kTileRow + row * kTileRow + ((piece % 8 ^ (row & 7)) << 4));
}

template <int kDim, int kStages, bool kReady>
__device__ __forceinline__ void produce(const Params& p, uint32_t stages, uint32_t full, uint32_t empty) {
  const AttentionTask& a = p.a.task;
  const KvLayerView& kv = a.kv;
  const uint64_t once = evict_first_policy();
  int n = 0;  // tiles so far
  for (int item = static_cast<int>(blockIdx.x); item < p.tokens * kv.kv_heads; item += static_cast<int>(gridDim.x)) {
    const int t = item / kv.kv_heads;
    const int sequence = kReady ? t : a.batch.seq_of_token[t];  // the first ones have a token each
    const int32_t* table = a.batch.block_table + int64_t{sequence} * a.batch.max_pages;
    int page = table[0];  // of the next tile
    const int cached = a.batch.pos[t];
    for (int first = 0; first < cached; first += kTile, ++n) {
      const int row = (page * kv.kv_heads + item % kv.kv_heads) * kv.page_size + first % kv.page_size;
      if (first + kTile < cached) page = table[(first + kTile) / kv.page_size];
      const auto stage = static_cast<uint32_t>(n % kStages);
      const uint32_t barrier = full + stage * 8;
      const uint32_t to = stages + stage * 2 * Layout<kDim, kStages>::kMatrix;
      wait_barrier(empty + stage * 8, n / kStages % 2 ^ 1);
      const auto copy = [&](const CUtensorMap& k, const CUtensorMap& v, int at) {
#pragma unroll
        for (int half = 0; half < kDim / 64; ++half) {
          const auto offset = static_cast<uint32_t>((half * kTile + at) * kTileRow);
          copy_box(to + offset, &k, half * 64, row + at, barrier, once);
          copy_box(to + Layout<kDim, kStages>::kMatrix + offset, &v, half * 64, row + at, barrier, once);
        }
      };
      if (cached - first >= kTile) {
        arrive_expecting(barrier, 2 * kTile * kDim * 2);
        copy(p.k, p.v, 0);
      } else {  // the rest of the tile is stale and never read
        const int boxes = (cached - first + kTailRows - 1) / kTailRows;
        arrive_expecting(barrier, 2 * boxes * kTailRows * kDim * 2);
        for (int b = 0; b < boxes; ++b) copy(p.k_tail, p.v_tail, b * kTailRows);
      }
    }
  }
}

// One thread: requests the block's share of the next product's weights into L2.
__device__ __forceinline__ void request_next(const Params& p) {
  constexpr int kLine = 128;
#pragma unroll
  for (const DecodeAttention::Request& r : p.a.next) {
    const int share = (r.bytes / static_cast<int>(gridDim.x) / kLine + 1) * kLine;
    const int first = share * static_cast<int>(blockIdx.x);
    const int bytes = min(share, r.bytes - first);
    if (bytes <= 0) continue;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(static_cast<const uint8_t*>(r.at) + first),
                 "r"(bytes)
                 : "memory");
  }
}

// Which token and kv head a pair is, and where they are: depends on no other kernel of the step.
struct Pair {
  int64_t t = 0;
  int kv_head = 0;
  int cached = 0;  // positions before the token's own
  int slot = -1;

  __device__ __forceinline__ Pair(const AttentionTask& a, int item)
      : t(item / a.kv.kv_heads), kv_head(item % a.kv.kv_heads), cached(a.batch.pos[t]), slot(a.batch.slot[t]) {}
};

// One head of a pair, in a warp's registers: of the group's queries, then the key and the value.
template <int kDim>
struct PairHead {
  static constexpr int kWords = kDim / 64;
  float2 v[kWords];
  HeadFactors<kDim> factors;

  __device__ __forceinline__ void load_factors(const Params& p, const Pair& pair, int h, int group, int lane) {
    if (h > group) return;
    factors.load(h < group ? p.a.norms.q : p.a.norms.k,
                 static_cast<const float*>(p.a.rope.table.data) + int64_t{pair.cached} * kDim,
                 p.a.rope.pairing == RopePairing::half_split, lane);
  }
  // After wait_for_previous().
  __device__ __forceinline__ void load_raw(const Params& p, const Pair& pair, int h, int group, int lane) {
    const RawHeads& raw = p.a.raw;
    const void* from = h < group ? raw.q : h == group ? raw.k : raw.v;
    const int64_t at = 2 * lane + (h < group ? pair.t * raw.q_stride + (pair.kv_head * group + h) * kDim
                                             : pair.t * raw.kv_stride + pair.kv_head * kDim);
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      v[w] = raw.dtype == DType::f32 ? load_pair(static_cast<const float*>(from) + at + w * 64)
                                     : load_pair(static_cast<const __nv_bfloat16*>(from) + at + w * 64);
    }
  }
  // The same of ready heads.
  template <typename T>
  __device__ __forceinline__ void load_ready(const Params& p, const Pair& pair, int h, int group, int lane) {
    const AttentionTask& a = p.a.task;
    const T* from = h < group
                        ? static_cast<const T*>(a.narrow_q) + (pair.t * a.q_heads + pair.kv_head * group + h) * kDim
                        : cache_row<T>(a.kv, pair, h == group ? a.kv.k : a.kv.v);
    const bool exists = h < group || pair.slot >= 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const auto* pairs = reinterpret_cast<const unsigned int*>(from + w * 64 + 2 * lane);
      v[w] = exists ? widen_pair<T>(__ldcg(pairs)) : make_float2(0, 0);
    }
  }
  template <typename T>
  static __device__ __forceinline__ T* cache_row(const KvLayerView& kv, const Pair& pair, void* rows) {
    const int slot = pair.slot;
    return static_cast<T*>(rows) +
           ((int64_t{slot / kv.page_size} * kv.kv_heads + pair.kv_head) * kv.page_size + slot % kv.page_size) * kDim;
  }
  // Normalizes and rotates it; queries into shared memory, key and value there and into the cache.
  template <typename T, typename L, bool kReady>
  __device__ __forceinline__ void finish(const Params& p, const Pair& pair, int h, int group, uint8_t* shared,
                                         int lane) {
    const KvLayerView& kv = p.a.task.kv;
    if (!kReady && h <= group) {
      const float* norm = h < group ? p.a.norms.q : p.a.norms.k;
      factors.apply(v, norm != nullptr, p.a.norms.eps, p.a.rope.pairing == RopePairing::half_split, lane);
    }
    if (h < group) {
      auto* queries = reinterpret_cast<T*>(shared + L::kQueries);
#pragma unroll
      for (int w = 0; w < kWords; ++w) store_pair(queries + h * kDim + w * 64 + 2 * lane, v[w]);
      return;
    }
    auto* own = reinterpret_cast<float*>(shared + L::kOwn);
    T* row = cache_row<T>(kv, pair, h == group ? kv.k : kv.v);
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (!kReady && pair.slot >= 0) store_pair(row + w * 64 + 2 * lane, v[w]);
      store_pair(own + (h - group) * kDim + w * 64 + 2 * lane,
                 make_float2(widen(static_cast<T>(v[w].x)), widen(static_cast<T>(v[w].y))));
    }
  }
};

// A warp's running sums over its positions.
template <typename T, int kDim>
struct Running {
  uint32_t query[kDim / 16][2];
  float o[kDim / 16][4] = {};  // columns 16 n + g and that plus 8, of heads 2c and 2c + 1
  HeadSoftmax softmax;

  // 16 positions of a tile, from `row` on; `seen` of them count.
  __device__ __forceinline__ void add(uint32_t keys, uint32_t values, int row, int seen, float factor, int lane) {
    const int c = lane % 4;
    const int matrix = lane / 8;
    const int matrix_row = lane % 8;
    float even[4] = {};
    float odd[4] = {};
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      uint32_t k[4];
      load_matrices(k, keys + swizzled(row + matrix % 2 * 8 + matrix_row, step * 2 + matrix / 2));
      mma<T>(step % 2 == 0 ? even : odd, k[0], k[1], k[2], k[3], query[step][0], query[step][1]);
    }
    float score[4];  // positions g, g, g + 8, g + 8
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      score[n] = lane / 4 + n / 2 * 8 < seen ? (even[n] + odd[n]) * factor : -INFINITY;
    }
    uint32_t weights[2];
    const float2 rescale = softmax.add<T>(score, weights);
    // Rows that are not seen count as zero, whatever the cache holds there: 0 * NaN is not 0.
    const auto pair_mask = [&](int at) { return (at < seen ? 0xffffU : 0U) | (at + 1 < seen ? 0xffff0000U : 0U); };
    const uint32_t low = pair_mask(2 * c);
    const uint32_t up = pair_mask(2 * c + 8);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t v[4];
      load_matrices_transposed(v, values + swizzled(row + matrix / 2 * 8 + matrix_row, n * 2 + matrix % 2));
      HeadSoftmax::multiply<T>(o[n], rescale, v[0] & low, v[1] & low, v[2] & up, v[3] & up, weights);
    }
  }
};

// The token's own position: score s, weight 1 at maximum s. It is the last term of the sums.
template <typename T, int kDim, typename L>
__device__ __forceinline__ void add_own(const AttentionTask& a, int group, uint8_t* shared, int warp, int lane) {
  const auto* queries = reinterpret_cast<const T*>(shared + L::kQueries);
  const auto* own = reinterpret_cast<const float*>(shared + L::kOwn);
  auto* sums = reinterpret_cast<float*>(shared + L::kSums) + kWarps * group * kDim;
  for (int h = warp; h < group; h += kWarps) {
    float score = 0;
#pragma unroll
    for (int i = lane; i < kDim; i += kWarp) {
      score = fmaf(widen(queries[h * kDim + i]), own[i], score);
      sums[h * kDim + i] = own[kDim + i];
    }
    score = warp_sum(score) * a.scale * kLog2e;
    if (lane == 0) {
      reinterpret_cast<float*>(shared + L::kRowMaxima)[kWarps * kMaxGroup + h] = score;
      reinterpret_cast<float*>(shared + L::kRowSums)[kWarps * kMaxGroup + h] = 1;
    }
  }
}

// Adds up the warps' sums of a pair and writes the result.
template <int kDim, typename L>
__device__ __forceinline__ void finish(const AttentionTask& a, int64_t t, int kv_head, int group, uint8_t* shared) {
  const auto* row_maxima = reinterpret_cast<const float*>(shared + L::kRowMaxima);
  const auto* row_sums = reinterpret_cast<const float*>(shared + L::kRowSums);
  const auto* sums = reinterpret_cast<const float*>(shared + L::kSums);
  for (int i = static_cast<int>(threadIdx.x); i < group * kDim; i += kComputing) {
    const int row = i / kDim;
    float high = -INFINITY;
#pragma unroll
    for (int w = 0; w <= kWarps; ++w) high = fmaxf(high, row_maxima[w * kMaxGroup + row]);
    float sum = 0;
    float value = 0;
#pragma unroll
    for (int w = 0; w <= kWarps; ++w) {
      const float share = fast_exp2(row_maxima[w * kMaxGroup + row] - high);
      sum = fmaf(row_sums[w * kMaxGroup + row], share, sum);
      value = fmaf(sums[w * group * kDim + i], share, value);
    }
    const int64_t at = (t * a.q_heads + kv_head * group) * kDim + i;
    if (a.narrow_out == nullptr) {
      a.out[at] = value / sum;
    } else if (a.narrow_type == DType::bf16) {
      static_cast<__nv_bfloat16*>(a.narrow_out)[at] = narrow<__nv_bfloat16>(value / sum);
    } else {
      static_cast<__half*>(a.narrow_out)[at] = narrow<__half>(value / sum);
    }
  }
}

template <typename T, int kDim, int kStages, bool kReady>
__device__ __forceinline__ void consume(const Params& p, uint8_t* shared, uint32_t full, uint32_t empty) {
  using L = Layout<kDim, kStages>;
  const AttentionTask& a = p.a.task;
  const int kv_heads = a.kv.kv_heads;
  const int group = a.q_heads / kv_heads;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4;
  const int c = lane % 4;
  const float factor = a.scale * kLog2e;
  auto* queries = reinterpret_cast<T*>(shared + L::kQueries);
  for (int i = group * kDim + static_cast<int>(threadIdx.x); i < kMaxGroup * kDim; i += kComputing) {
    queries[i] = narrow<T>(0.0F);
  }
  // The heads of the next pair are loaded while this one's positions are processed.
  const int items = p.tokens * kv_heads;
  const auto stride = static_cast<int>(gridDim.x);
  Pair next(a, static_cast<int>(blockIdx.x));
  PairHead<kDim> head;
  const auto load_factors = [&](const Pair& pair, int h) {
    if (!kReady && h < group + 2) head.load_factors(p, pair, h, group, lane);
  };
  const auto load_head = [&](const Pair& pair, int h) {
    if (h >= group + 2) return;
    if constexpr (kReady) {
      head.template load_ready<T>(p, pair, h, group, lane);
    } else {
      head.load_raw(p, pair, h, group, lane);
    }
  };
  load_factors(next, warp);
  if (!kReady) wait_for_previous();
  if (!kReady && p.a.frees_memory) let_next_start();
  load_head(next, warp);
  int n = 0;  // tiles so far
  for (int item = static_cast<int>(blockIdx.x); item < items; item += stride) {
    const Pair pair = next;
    if (item + stride < items) next = Pair(a, item + stride);
    for (int h = warp; h < group + 2; h += kWarps) {
      if (h != warp) {
        load_factors(pair, h);
        load_head(pair, h);
      }
      head.template finish<T, L, kReady>(p, pair, h, group, shared, lane);
    }
    const int cached = pair.cached;
    sync_barrier(1, kComputing);
    if (item + stride < items) {
      load_factors(next, warp);
      load_head(next, warp);
    }
    add_own<T, kDim, L>(a, group, shared, warp, lane);

    Running<T, kDim> running;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const T* q = queries + g * kDim + step * 16 + 2 * c;
      running.query[step][0] = *reinterpret_cast<const uint32_t*>(q);
      running.query[step][1] = *reinterpret_cast<const uint32_t*>(q + 8);
    }
    for (int first = 0; first < cached; first += kTile, ++n) {
      const auto stage = static_cast<uint32_t>(n % kStages);
      wait_barrier(full + stage * 8, n / kStages % 2);
      const int seen = cached - first - warp * 16;
      if (seen > 0) {
        const uint32_t keys = shared_address(shared) + stage * 2 * L::kMatrix;
        running.add(keys, keys + L::kMatrix, warp * 16, seen, factor, lane);
      }
      __syncwarp();
      if (lane == 0) arrive(empty + stage * 8);
    }
    running.softmax.finish();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int h = 2 * c + i;
      if (h >= group) break;
      auto* sums = reinterpret_cast<float*>(shared + L::kSums) + (warp * group + h) * kDim + g;
#pragma unroll
      for (int j = 0; j < kDim / 16; ++j) {
        sums[j * 16] = running.o[j][i];
        sums[j * 16 + 8] = running.o[j][i + 2];
      }
      if (g == 0) {
        reinterpret_cast<float*>(shared + L::kRowMaxima)[warp * kMaxGroup + h] = running.softmax.high[i];
        reinterpret_cast<float*>(shared + L::kRowSums)[warp * kMaxGroup + h] = running.softmax.sum[i];
      }
    }
    sync_barrier(1, kComputing);
    finish<kDim, L>(a, pair.t, pair.kv_head, group, shared);
    sync_barrier(1, kComputing);  // the next pair's heads and sums reuse the memory
  }
}

template <typename T, int kDim, int kStages, bool kReady>
__global__ void __launch_bounds__(kComputing + kWarp, 3) batch_attention_kernel(const __grid_constant__ Params p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t unaligned[];
  using L = Layout<kDim, kStages>;
  uint8_t* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t full = shared_address(shared) + L::kBarriers;
  const uint32_t empty = full + kStages * 8;
  if (threadIdx.x == 0) {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      init_barrier(full + stage * 8, 1);
      init_barrier(empty + stage * 8, kWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (kReady || !p.a.frees_memory) let_next_start();
  if (threadIdx.x >= kComputing) {
    const bool one = elect_one();
    if (!kReady && one) request_next(p);
    if (one) produce<kDim, kStages, kReady>(p, shared_address(shared), full, empty);
  } else {
    consume<T, kDim, kStages, kReady>(p, shared, full, empty);
  }
  // Beside another attention one block that waits is enough: the others give their multiprocessors to the next kernel.
  if (!kReady || blockIdx.x == 0) wait_for_previous();
#endif
}

// Many pairs per multiprocessor: three blocks share it, each with fewer tiles in flight, so that one has heads to
// prepare or sums to merge while others wait for memory. Else two, whose first tiles are all of a short sequence.
constexpr int kManyStages = 2;
constexpr int kFewStages = 3;

template <typename T, int kDim, int kStages, bool kReady>
void launch_typed(const LaunchContext& c, const Params& p) {
  const AttentionTask& task = p.a.task;
  const int items = p.tokens * task.kv.kv_heads;
  const int most = c.sm_count * (kStages == kManyStages ? 3 : 2);
  launch(c,
         {dim3(static_cast<unsigned>(items < most ? items : most)), dim3(kComputing + kWarp),
          Layout<kDim, kStages>::bytes(task.q_heads / task.kv.kv_heads)},
         batch_attention_kernel<T, kDim, kStages, kReady>, p);
}

template <typename T, int kDim, bool kReady>
void launch_with(const LaunchContext& c, const Params& p) {
  constexpr int kMany = 6;  // pairs per multiprocessor
  constexpr int kThird = 75 * 1024;
  const AttentionTask& task = p.a.task;
  const bool many = p.tokens * task.kv.kv_heads >= kMany * c.sm_count;
  if (many && Layout<kDim, kManyStages>::bytes(task.q_heads / task.kv.kv_heads) <= kThird) {
    launch_typed<T, kDim, kManyStages, kReady>(c, p);
  } else {
    launch_typed<T, kDim, kFewStages, kReady>(c, p);
  }
}

template <bool kReady>
bool launch_any(const LaunchContext& c, Params& p) {
  const KvLayerView& kv = p.a.task.kv;
  if (!map_cache(kv, kTile, &p.k, &p.v) || !map_cache(kv, kTailRows, &p.k_tail, &p.v_tail)) return false;
  const auto with_type = [&]<typename T>() {
    kv.head_dim == 128 ? launch_with<T, 128, kReady>(c, p) : launch_with<T, 64, kReady>(c, p);
  };
  if (kv.dtype == DType::bf16) {
    with_type.template operator()<__nv_bfloat16>();
  } else {
    with_type.template operator()<__half>();
  }
  return true;
}

}  // namespace

bool batch_attention_supports(const LaunchContext& c, const KvLayerView& kv, int q_heads, int tokens) {
  // Fewer pairs need several blocks each (launch_decode_attention).
  constexpr int kLeastShare = 3;  // of the multiprocessors, one in so many has a block
  return c.hopper && maps_cache(kv) && q_heads / kv.kv_heads <= kMaxGroup &&
         tokens * kv.kv_heads >= c.sm_count / kLeastShare;
}

bool launch_batch_attention(const LaunchContext& c, const DecodeAttention& task) {
  Params p;
  p.a = task;
  p.tokens = task.task.batch.tokens;
  return launch_any<false>(c, p);
}

bool attention_beside_supports(const LaunchContext& c, const KvLayerView& kv, int q_heads) {
  return c.hopper && maps_cache(kv) && q_heads / kv.kv_heads <= kMaxGroup;
}

bool launch_attention_beside(const LaunchContext& c, const AttentionTask& task) {
  Params p;
  p.a.task = task;
  p.tokens = task.batch.decodes;
  return launch_any<true>(c, p);
}

}  // namespace inferno::cuda
