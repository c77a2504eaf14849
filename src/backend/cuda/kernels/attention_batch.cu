// Attention of many sequences with one token each: persistent blocks, a few per multiprocessor, that loop over (token,
// kv head) pairs.
//
// One producer thread keeps TMA copies of tiles of 64 positions of K and V in flight, across pairs; the cache of
// earlier steps is read before wait_for_previous(). Four consumer warps compute the pair's heads from the raw
// projections (QK-norm, rotation, the new rows of the cache); each processes 16 positions of every tile with its own
// running maximum and sum, and the four are merged at the end. The heads of a group are the rows of a tensor-core tile.
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
constexpr int kStages = 3;
constexpr int kBlocksPerSm = 2;
constexpr float kLog2e = 1.4426950408889634F;

struct Params {
  DecodeAttention a;
  CUtensorMap k, v;            // boxes of kTile rows
  CUtensorMap k_tail, v_tail;  // boxes of kTailRows rows, for the last tile of a sequence
};

// Shared memory; `group` query heads.
template <int kDim>
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

template <int kDim>
__device__ __forceinline__ void produce(const Params& p, uint32_t stages, uint32_t full, uint32_t empty) {
  const AttentionTask& a = p.a.task;
  const KvLayerView& kv = a.kv;
  int n = 0;  // tiles so far
  for (int item = static_cast<int>(blockIdx.x); item < a.batch.tokens * kv.kv_heads;
       item += static_cast<int>(gridDim.x)) {
    const int t = item / kv.kv_heads;
    const int32_t* table = a.batch.block_table + int64_t{a.batch.seq_of_token[t]} * a.batch.max_pages;
    const int cached = a.batch.pos[t];
    for (int first = 0; first < cached; first += kTile, ++n) {
      const int row =
          (table[first / kv.page_size] * kv.kv_heads + item % kv.kv_heads) * kv.page_size + first % kv.page_size;
      const auto stage = static_cast<uint32_t>(n % kStages);
      const uint32_t barrier = full + stage * 8;
      const uint32_t to = stages + stage * 2 * Layout<kDim>::kMatrix;
      wait_barrier(empty + stage * 8, n / kStages % 2 ^ 1);
      const auto copy = [&](const CUtensorMap& k, const CUtensorMap& v, int at) {
#pragma unroll
        for (int half = 0; half < kDim / 64; ++half) {
          const auto offset = static_cast<uint32_t>((half * kTile + at) * kTileRow);
          copy_box(to + offset, &k, half * 64, row + at, barrier);
          copy_box(to + Layout<kDim>::kMatrix + offset, &v, half * 64, row + at, barrier);
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

// The heads of a pair from the raw projections, each by one warp: queries, then the new key and value.
template <typename T, int kDim>
__device__ __forceinline__ void make_heads(const Params& p, int64_t t, int kv_head, uint8_t* shared, int warp,
                                           int lane) {
  using L = Layout<kDim>;
  constexpr int kWords = kDim / 64;
  const AttentionTask& a = p.a.task;
  const KvLayerView& kv = a.kv;
  const int group = a.q_heads / kv.kv_heads;
  const bool half_split = p.a.rope.pairing == RopePairing::half_split;
  auto* queries = reinterpret_cast<T*>(shared + L::kQueries);
  auto* own = reinterpret_cast<float*>(shared + L::kOwn);
  for (int h = warp; h < group + 2; h += kWarps) {
    const bool query = h < group;
    const bool key = h == group;
    const void* raw = query ? p.a.raw.q : key ? p.a.raw.k : p.a.raw.v;
    const int64_t at = query ? t * p.a.raw.q_stride + (kv_head * group + h) * kDim + 2 * lane
                             : t * p.a.raw.kv_stride + kv_head * kDim + 2 * lane;
    float2 v[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      v[w] = p.a.raw.dtype == DType::f32 ? load_pair(static_cast<const float*>(raw) + at + w * 64)
                                         : load_pair(static_cast<const __nv_bfloat16*>(raw) + at + w * 64);
    }
    if (query || key) {
      const float* norm = query ? p.a.norms.q : p.a.norms.k;
      const float* cos_sin = static_cast<const float*>(p.a.rope.table.data) + int64_t{a.batch.pos[t]} * kDim;
      HeadFactors<kDim> factors;
      factors.load(norm, cos_sin, half_split, lane);
      factors.apply(v, norm != nullptr, p.a.norms.eps, half_split, lane);
    }
    if (query) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) store_pair(queries + h * kDim + w * 64 + 2 * lane, v[w]);
      continue;
    }
    const int slot = a.batch.slot[t];
    T* row = static_cast<T*>(key ? kv.k : kv.v) +
             ((int64_t{slot / kv.page_size} * kv.kv_heads + kv_head) * kv.page_size + slot % kv.page_size) * kDim;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if (slot >= 0) store_pair(row + w * 64 + 2 * lane, v[w]);
      store_pair(own + (h - group) * kDim + w * 64 + 2 * lane,
                 make_float2(widen(static_cast<T>(v[w].x)), widen(static_cast<T>(v[w].y))));
    }
  }
}

// A warp's running sums over its positions.
template <typename T, int kDim>
struct Running {
  uint32_t query[kDim / 16][2];
  float o[kDim / 8][2] = {};
  float row_max = -INFINITY;  // of row lane / 4, in units of log2
  float row_sum = 0;          // of that row, this lane's columns

  // 16 positions of a tile, from `row` on; `seen` of them count.
  __device__ __forceinline__ void add(uint32_t keys, uint32_t values, int row, int seen, float factor, int lane) {
    const int c = lane % 4;
    const int matrix = lane / 8;
    const int matrix_row = lane % 8;
    float s[2][4] = {};
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      uint32_t k[4];
      load_matrices(k, keys + swizzled(row + matrix / 2 * 8 + matrix_row, step * 2 + matrix % 2));
      mma<T>(s[0], query[step][0], 0, query[step][1], 0, k[0], k[1]);
      mma<T>(s[1], query[step][0], 0, query[step][1], 0, k[2], k[3]);
    }
    float score[4];  // positions 2c, 2c + 1, 2c + 8, 2c + 9
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      score[n] = 2 * c + n % 2 + n / 2 * 8 < seen ? s[n / 2][n % 2] * factor : -INFINITY;
    }
    float high = fmaxf(fmaxf(score[0], score[1]), fmaxf(score[2], score[3]));
    high = fmaxf(high, __shfl_xor_sync(kFullMask, high, 1));
    high = fmaxf(high, __shfl_xor_sync(kFullMask, high, 2));
    const float new_max = fmaxf(row_max, high);  // finite: at least one position is seen
    const float rescale = fast_exp2(row_max - new_max);
    row_max = new_max;
    float weight[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) weight[n] = fast_exp2(score[n] - row_max);
    row_sum = row_sum * rescale + (weight[0] + weight[1]) + (weight[2] + weight[3]);
    const uint32_t p0 = pack_pair<T>(weight[0], weight[1]);
    const uint32_t p1 = pack_pair<T>(weight[2], weight[3]);
    // Rows that are not seen count as zero, whatever the cache holds there: 0 * NaN is not 0.
    const auto pair_mask = [&](int at) { return (at < seen ? 0xffffU : 0U) | (at + 1 < seen ? 0xffff0000U : 0U); };
    const uint32_t low = pair_mask(2 * c);
    const uint32_t up = pair_mask(2 * c + 8);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t v[4];
      load_matrices_transposed(v, values + swizzled(row + matrix % 2 * 8 + matrix_row, n * 2 + matrix / 2));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float acc[4] = {o[2 * n + i][0] * rescale, o[2 * n + i][1] * rescale, 0, 0};
        mma<T>(acc, p0, 0, p1, 0, v[2 * i] & low, v[2 * i + 1] & up);
        o[2 * n + i][0] = acc[0];
        o[2 * n + i][1] = acc[1];
      }
    }
  }
};

// The token's own position: score s, weight 1 at maximum s. It is the last term of the sums.
template <typename T, int kDim>
__device__ __forceinline__ void add_own(const AttentionTask& a, int group, uint8_t* shared, int warp, int lane) {
  using L = Layout<kDim>;
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
template <int kDim>
__device__ __forceinline__ void finish(const AttentionTask& a, int64_t t, int kv_head, int group, uint8_t* shared) {
  using L = Layout<kDim>;
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

template <typename T, int kDim>
__device__ __forceinline__ void consume(const Params& p, uint8_t* shared, uint32_t full, uint32_t empty) {
  using L = Layout<kDim>;
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
  wait_for_previous();
  int n = 0;  // tiles so far
  for (int item = static_cast<int>(blockIdx.x); item < a.batch.tokens * kv_heads; item += static_cast<int>(gridDim.x)) {
    const int64_t t = item / kv_heads;
    const int kv_head = item % kv_heads;
    const int cached = a.batch.pos[t];
    make_heads<T, kDim>(p, t, kv_head, shared, warp, lane);
    sync_barrier(1, kComputing);
    add_own<T, kDim>(a, group, shared, warp, lane);

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
    running.row_sum += __shfl_xor_sync(kFullMask, running.row_sum, 1);
    running.row_sum += __shfl_xor_sync(kFullMask, running.row_sum, 2);
    if (g < group) {
      auto* sums = reinterpret_cast<float*>(shared + L::kSums) + (warp * group + g) * kDim;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        *reinterpret_cast<float2*>(sums + i * 8 + 2 * c) = make_float2(running.o[i][0], running.o[i][1]);
      }
      if (c == 0) {
        reinterpret_cast<float*>(shared + L::kRowMaxima)[warp * kMaxGroup + g] = running.row_max;
        reinterpret_cast<float*>(shared + L::kRowSums)[warp * kMaxGroup + g] = running.row_sum;
      }
    }
    sync_barrier(1, kComputing);
    finish<kDim>(a, t, kv_head, group, shared);
    sync_barrier(1, kComputing);  // the next pair's heads and sums reuse the memory
  }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kComputing + kWarp, kBlocksPerSm)
    batch_attention_kernel(const __grid_constant__ Params p) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint8_t unaligned[];
  using L = Layout<kDim>;
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
  let_next_start();
  if (threadIdx.x >= kComputing) {
    if (threadIdx.x == kComputing) produce<kDim>(p, shared_address(shared), full, empty);
    wait_for_previous();
  } else {
    consume<T, kDim>(p, shared, full, empty);
  }
#endif
}

template <typename T, int kDim>
void launch_typed(const LaunchContext& c, const Params& p) {
  const AttentionTask& task = p.a.task;
  const int items = task.batch.tokens * task.kv.kv_heads;
  const int blocks = items < c.sm_count * kBlocksPerSm ? items : c.sm_count * kBlocksPerSm;
  launch(c,
         {dim3(static_cast<unsigned>(blocks)), dim3(kComputing + kWarp),
          Layout<kDim>::bytes(task.q_heads / task.kv.kv_heads)},
         batch_attention_kernel<T, kDim>, p);
}

}  // namespace

bool batch_attention_supports(const LaunchContext& c, const KvLayerView& kv, int q_heads, int tokens) {
  // With clearly fewer pairs than multiprocessors, long sequences need several blocks each (launch_decode_attention).
  constexpr int kIdleShare = 16;
  return c.hopper && maps_cache(kv) && q_heads / kv.kv_heads <= kMaxGroup &&
         tokens * kv.kv_heads >= c.sm_count - c.sm_count / kIdleShare;
}

bool launch_batch_attention(const LaunchContext& c, const DecodeAttention& task) {
  Params p;
  p.a = task;
  if (!map_cache(task.task.kv, kTile, &p.k, &p.v) || !map_cache(task.task.kv, kTailRows, &p.k_tail, &p.v_tail))
    return false;
  const auto with_type = [&]<typename T>() {
    task.task.kv.head_dim == 128 ? launch_typed<T, 128>(c, p) : launch_typed<T, 64>(c, p);
  };
  if (task.task.kv.dtype == DType::bf16) {
    with_type.template operator()<__nv_bfloat16>();
  } else {
    with_type.template operator()<__half>();
  }
  return true;
}

}  // namespace inferno::cuda
