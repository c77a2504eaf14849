// Attention of many tokens per sequence with Hopper's warpgroup products: the fast path of attention_prefill.cu.
//
// A block has 64 rows per consumer warpgroup: rows are (token, head of one group), so that all of them share the keys
// they load. A producer warp keeps TMA copies of tiles of 128 positions of K and V in flight into a double buffer. The
// consumers' loop is software-pipelined: the asynchronous product of the next tile's keys runs while the scores of this
// one become weights, and the weights are multiplied with their values one iteration later. Scores, maxima and sums are
// f32; queries, weights and the cache are 16-bit. Blocks with the most keys start first.
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tensor_map.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

namespace inferno::cuda {
namespace {

constexpr int kKeys = 128;  // positions of a tile
constexpr int kBox = kMapRows;
constexpr int kWarpgroup = 128;  // threads
constexpr int kTileRow = 128;    // bytes of a row of a tile: 64 values
constexpr int kStages = 2;
constexpr float kLog2e = 1.4426950408889634F;

struct Params {
  AttentionTask a;
  CUtensorMap k, v;
};

template <int kDim, int kConsumers>
struct Layout {
  static constexpr int kRows = kConsumers * 64;
  static constexpr int kHalves = kDim / 64;             // 64-wide column halves
  static constexpr int kQueryBytes = kRows * kDim * 2;  // [consumer][half][64 rows]
  static constexpr int kKeyHalf = kKeys * kTileRow;     // bytes of a tile of K or V
  static constexpr int kKeyBytes = kKeyHalf * kHalves;  // [half][128 rows]
  static constexpr int kBarriers = kQueryBytes + 2 * kStages * kKeyBytes;
  static constexpr int kBytes = kBarriers + 4 * kStages * 8 + 1024;  // the start is rounded up to 1024
};

__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * kTileRow + ((piece ^ (row & 7)) << 4);
}

// The rows, and the positions they attend to, of a block.
struct BlockTile {
  int kv_head, first_token, first_row, row_count, visible, free_until;
  const int32_t* table;
};

template <int kRows>
__device__ __forceinline__ bool find_tile(const AttentionTask& a, BlockTile& p) {
  const int group = a.q_heads / a.kv.kv_heads;
  p.kv_head = static_cast<int>(blockIdx.x) % a.kv.kv_heads;
  int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x) / a.kv.kv_heads;
  int rows = 0;
  int sequence = 0;
  for (;; ++sequence) {
    if (sequence >= a.batch.sequences) return false;
    p.first_token = a.batch.q_begin[sequence];
    rows = (a.batch.q_begin[sequence + 1] - p.first_token) * group;
    const int tiles = (rows + kRows - 1) / kRows;
    if (tile < tiles) break;
    tile -= tiles;
  }
  p.first_row = tile * kRows;
  p.row_count = min(kRows, rows - p.first_row);
  p.visible = a.batch.pos[p.first_token + (p.first_row + p.row_count - 1) / group] + 1;
  p.free_until = a.batch.pos[p.first_token + p.first_row / group] + 1;  // positions that every row sees
  p.table = a.batch.block_table + int64_t{sequence} * a.batch.max_pages;
  return true;
}

// One thread: tiles of K and V into the stages as they become free.
template <int kDim, int kConsumers>
__device__ __forceinline__ void produce(const Params& p, const BlockTile& work, uint32_t keys, uint32_t values,
                                        uint32_t barriers) {
  using L = Layout<kDim, kConsumers>;
  const KvLayerView& kv = p.a.kv;
  const int tiles = (work.visible + kKeys - 1) / kKeys;
  for (int j = 0; j < tiles; ++j) {
    const int stage = j % kStages;
    const int parity = j / kStages % 2;
    int rows[kKeys / kBox];
    int boxes = 0;
#pragma unroll
    for (int b = 0; b < kKeys / kBox; ++b) {
      const int first = j * kKeys + b * kBox;
      if (first >= work.visible) break;
      rows[b] = (work.table[first / kv.page_size] * kv.kv_heads + work.kv_head) * kv.page_size + first % kv.page_size;
      ++boxes;
    }
    const auto bring = [&](const CUtensorMap& map, uint32_t to, uint32_t full, uint32_t empty) {
      wait_barrier(empty, parity ^ 1);
      arrive_expecting(full, boxes * kBox * kDim * 2);
#pragma unroll
      for (int b = 0; b < kKeys / kBox; ++b) {
        if (b >= boxes) break;
#pragma unroll
        for (int half = 0; half < L::kHalves; ++half) {
          copy_box(to + static_cast<uint32_t>(half * L::kKeyHalf + b * kBox * kTileRow), &map, half * 64, rows[b],
                   full);
        }
      }
    };
    const auto offset = static_cast<uint32_t>(stage * L::kKeyBytes);
    const auto slot = static_cast<uint32_t>(stage * 8);
    bring(p.k, keys + offset, barriers + slot, barriers + 16 + slot);
    bring(p.v, values + offset, barriers + 32 + slot, barriers + 48 + slot);
  }
}

// Scores of a tile become weights, exp2(factor * score - row_max), in place. rescale: the factor of earlier sums, per
// half of the rows.
__device__ __forceinline__ void online_softmax(float (&s)[64], float factor, bool masked, const int* limit, int first,
                                               int column, float* row_max, float* row_sum, float* rescale) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (masked) {
      const int seen = limit[half] - first - column;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        if (n * 8 >= seen) s[n * 4 + half * 2] = -INFINITY;
        if (n * 8 + 1 >= seen) s[n * 4 + half * 2 + 1] = -INFINITY;
      }
    }
    float tile_max = s[half * 2];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) tile_max = fmaxf(tile_max, fmaxf(s[n * 4 + half * 2], s[n * 4 + half * 2 + 1]));
    tile_max = fmaxf(tile_max, __shfl_xor_sync(kFullMask, tile_max, 1));
    tile_max = fmaxf(tile_max, __shfl_xor_sync(kFullMask, tile_max, 2));
    // The first tile has a position for every row, so the maximum is finite from there on.
    const float new_max = fmaxf(row_max[half], tile_max * factor);
    rescale[half] = fast_exp2(row_max[half] - new_max);
    row_max[half] = new_max;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[n * 4 + half * 2 + i];
        score = fast_exp2(fmaf(score, factor, -new_max));
        sum += score;
      }
    }
    row_sum[half] = row_sum[half] * rescale[half] + sum;
  }
}

template <typename T>
__device__ __forceinline__ void pack_weights(const float (&s)[64], uint32_t (&weights)[kKeys / 16][4]) {
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) weights[step][i] = pack_pair<T>(s[step * 8 + i * 2], s[step * 8 + i * 2 + 1]);
  }
}

// The queries of one warpgroup: rows `from`, from + 1, ... of the block, into its tiles.
template <typename T, int kDim>
__device__ __forceinline__ void load_queries(const AttentionTask& a, const BlockTile& work, int from, uint8_t* to) {
  const int group = a.q_heads / a.kv.kv_heads;
#pragma unroll 4
  for (int item = static_cast<int>(threadIdx.x) % kWarpgroup; item < 64 * kDim / 8; item += kWarpgroup) {
    const int row = item / (kDim / 8);
    const int piece = item % (kDim / 8);
    uint4 packed = make_uint4(0, 0, 0, 0);
    if (from + row < work.row_count) {
      const int r = work.first_row + from + row;
      const int64_t head = int64_t{work.first_token + r / group} * a.q_heads + work.kv_head * group + r % group;
      if (a.narrow_q != nullptr) {
        packed = load_fresh_16(static_cast<const T*>(a.narrow_q) + head * kDim + piece * 8);
      } else {
        float v[8];
        load_fresh8(a.q + head * kDim + piece * 8, 8, true, v);
        packed = make_uint4(pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]),
                            pack_pair<T>(v[6], v[7]));
      }
    }
    *reinterpret_cast<uint4*>(to + piece / 8 * 64 * kTileRow + swizzled(row, piece % 8)) = packed;
  }
}

// Epilogue: the results of one warpgroup; 16-bit ones pass through its query tiles, so that stores are 16 bytes wide.
template <int kDim>
__device__ __forceinline__ void store_results(const AttentionTask& a, const BlockTile& work, int from, const float* o,
                                              const float* row_sum, uint8_t* shared, int barrier) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp;
  const int group = a.q_heads / a.kv.kv_heads;
  const auto head_of = [&](int row) {
    const int r = work.first_row + from + row;
    return int64_t{work.first_token + r / group} * a.q_heads + work.kv_head * group + r % group;
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = row_sum[half];
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    sum += __shfl_xor_sync(kFullMask, sum, 2);
    const float inverse = 1.0F / sum;
    const int row = warp * 16 + half * 8 + lane / 4;
    const bool exists = from + row < work.row_count;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float x = o[n * 4 + half * 2] * inverse;
      const float y = o[n * 4 + half * 2 + 1] * inverse;
      if (a.narrow_out == nullptr) {
        if (exists) *reinterpret_cast<float2*>(a.out + head_of(row) * kDim + n * 8 + lane % 4 * 2) = make_float2(x, y);
      } else {
        const uint32_t pair = a.narrow_type == DType::bf16
                                  ? pack_pair<__nv_bfloat16>(x, y)
                                  : pack_pair<__half>(widen(narrow<__half>(x)), widen(narrow<__half>(y)));
        *reinterpret_cast<uint32_t*>(shared + n / 8 * 64 * kTileRow + swizzled(row, n % 8) + lane % 4 * 4) = pair;
      }
    }
  }
  if (a.narrow_out == nullptr) return;
  sync_barrier(barrier, kWarpgroup);
  for (int item = static_cast<int>(threadIdx.x) % kWarpgroup; item < 64 * kDim / 8; item += kWarpgroup) {
    const int row = item / (kDim / 8);
    const int piece = item % (kDim / 8);
    if (from + row >= work.row_count) continue;
    const auto* packed = reinterpret_cast<const uint4*>(shared + piece / 8 * 64 * kTileRow + swizzled(row, piece % 8));
    *reinterpret_cast<uint4*>(static_cast<uint8_t*>(a.narrow_out) + (head_of(row) * kDim + piece * 8) * 2) = *packed;
  }
}

template <typename T, int kDim, int kConsumers>
__device__ __forceinline__ void consume(const Params& p, const BlockTile& work, uint8_t* shared, uint32_t barriers) {
  using L = Layout<kDim, kConsumers>;
  const AttentionTask& a = p.a;
  const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp;
  const int from = consumer * 64;
  constexpr int kAllConsumers = 1;  // named barrier of all consumers
  const int own = 2 + consumer;
  uint8_t* my_queries = shared + consumer * 64 * kDim * 2;
  load_queries<T, kDim>(a, work, from, my_queries);
  fence_async_shared();
  sync_barrier(own, kWarpgroup);

  int limit[2];  // positions the row sees
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(from + warp * 16 + half * 8 + lane / 4, work.row_count - 1);
    limit[half] = a.batch.pos[work.first_token + (work.first_row + row) / (a.q_heads / a.kv.kv_heads)] + 1;
  }
  const uint32_t queries = shared_address(my_queries);
  const uint32_t keys = shared_address(shared) + L::kQueryBytes;
  const uint32_t values = keys + kStages * L::kKeyBytes;
  const float factor = a.scale * kLog2e;
  const int column = lane % 4 * 2;
  const int tiles = (work.visible + kKeys - 1) / kKeys;
  float s[64];
  float o[kDim / 2];
  uint32_t weights[kKeys / 16][4];
  float row_max[2] = {-INFINITY, -INFINITY};
  float row_sum[2] = {};
  float rescale[2];

  const auto score = [&](int j) {  // s = q k^T, asynchronous
    const uint32_t tile = keys + static_cast<uint32_t>(j % kStages * L::kKeyBytes);
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const uint32_t at = static_cast<uint32_t>(step % 4 * 32);
      multiply(T(), s, operand(queries + static_cast<uint32_t>(step / 4 * 64 * kTileRow) + at),
               operand(tile + static_cast<uint32_t>(step / 4 * L::kKeyHalf) + at), step > 0);
    }
    wgmma_commit();
  };
  const auto accumulate = [&](int j) {  // o += weights * v, asynchronous
    const uint32_t tile = values + static_cast<uint32_t>(j % kStages * L::kKeyBytes);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      multiply_transposed(T(), o, weights[step],
                          operand_transposed(tile + static_cast<uint32_t>(step * 16 * kTileRow), L::kKeyHalf),
                          j > 0 || step > 0);
    }
    wgmma_commit();
  };
  const auto slot = [](int j) { return static_cast<uint32_t>(j % kStages * 8); };
  const auto release = [&](uint32_t barrier) {
    if (lane == 0) arrive(barrier);
  };

  wait_barrier(barriers, 0);
  wgmma_fence();
  score(0);
  wgmma_wait<0>();
  pin(s);
  release(barriers + 16);
  online_softmax(s, factor, kKeys > work.free_until, limit, 0, column, row_max, row_sum, rescale);
  pack_weights<T>(s, weights);
  for (int j = 1; j < tiles; ++j) {
    wait_barrier(barriers + slot(j), j / kStages % 2);
    wgmma_fence();
    score(j);
    wait_barrier(barriers + 32 + slot(j - 1), (j - 1) / kStages % 2);
    wgmma_fence();
    accumulate(j - 1);
    wgmma_wait<1>();
    pin(s);
    release(barriers + 16 + slot(j));
    online_softmax(s, factor, (j + 1) * kKeys > work.free_until, limit, j * kKeys, column, row_max, row_sum, rescale);
    wgmma_wait<0>();
    pin(o);
    release(barriers + 48 + slot(j - 1));
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) o[i] *= rescale[i / 2 % 2];
    pack_weights<T>(s, weights);
  }
  const int last = tiles - 1;
  wait_barrier(barriers + 32 + slot(last), last / kStages % 2);
  // Rows that no query sees are zero, whatever the cache holds there: their weights are zero, but 0 * NaN is not.
  if (work.visible % kKeys != 0) {
    uint8_t* tile = shared + L::kQueryBytes + (kStages + last % kStages) * L::kKeyBytes;
    const int seen = work.visible % kKeys;
    for (int item = static_cast<int>(threadIdx.x); item < (kKeys - seen) * kDim / 8; item += kConsumers * kWarpgroup) {
      const int row = seen + item / (kDim / 8);
      const int piece = item % (kDim / 8);
      *reinterpret_cast<uint4*>(tile + piece / 8 * L::kKeyHalf + row * kTileRow + piece % 8 * 16) =
          make_uint4(0, 0, 0, 0);
    }
    fence_async_shared();
    sync_barrier(kAllConsumers, kConsumers * kWarpgroup);
  }
  wgmma_fence();
  accumulate(last);
  wgmma_wait<0>();
  pin(o);
  store_results<kDim>(a, work, from, o, row_sum, my_queries, own);
}

template <typename T, int kDim, int kConsumers>
__global__ void __launch_bounds__((kConsumers + 1) * kWarpgroup, 1)
    hopper_attention_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t unaligned[];
  using L = Layout<kDim, kConsumers>;
  uint8_t* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t barriers = shared_address(shared) + L::kBarriers;  // K full, K empty, V full, V empty, by stage
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      const auto slot = static_cast<uint32_t>(stage * 8);
      init_barrier(barriers + slot, 1);
      init_barrier(barriers + 16 + slot, kConsumers * 4);
      init_barrier(barriers + 32 + slot, 1);
      init_barrier(barriers + 48 + slot, kConsumers * 4);
    }
    fence_barrier_init();
  }
  __syncthreads();
  let_next_start();
  wait_for_previous();
  BlockTile work;
  if (!find_tile<L::kRows>(p.a, work)) return;
  constexpr bool kReallocates = kConsumers > 1;  // a single consumer has enough registers
  if (threadIdx.x >= kConsumers * kWarpgroup) {
    if constexpr (kReallocates) release_registers<24>();
    if (threadIdx.x == kConsumers * kWarpgroup) {
      const uint32_t keys = shared_address(shared) + L::kQueryBytes;
      produce<kDim, kConsumers>(p, work, keys, keys + kStages * L::kKeyBytes, barriers);
    }
  } else {
    if constexpr (kReallocates) claim_registers<240>();
    consume<T, kDim, kConsumers>(p, work, shared, barriers);
  }
#endif
}

template <typename T, int kDim, int kConsumers>
void launch_rows(const LaunchContext& c, const Params& p) {
  using L = Layout<kDim, kConsumers>;
  const int group = p.a.q_heads / p.a.kv.kv_heads;
  // Every sequence may end in a tile of its own.
  const int tiles = divide_up(p.a.batch.tokens * group, L::kRows) + p.a.batch.sequences - 1;
  launch(c, {dim3(static_cast<unsigned>(tiles * p.a.kv.kv_heads)), dim3((kConsumers + 1) * kWarpgroup), L::kBytes},
         hopper_attention_kernel<T, kDim, kConsumers>, p);
}

template <typename T, int kDim>
void launch_typed(const LaunchContext& c, const Params& p) {
  // Large tiles read each key for more queries; small ones reach more multiprocessors.
  const int64_t rows = int64_t{p.a.batch.tokens} * p.a.q_heads;
  rows >= int64_t{c.sm_count} * 128 ? launch_rows<T, kDim, 2>(c, p) : launch_rows<T, kDim, 1>(c, p);
}

}  // namespace

bool hopper_attention_supports(const LaunchContext& c, const KvLayerView& kv, int q_heads) {
  return c.hopper && maps_cache(kv) && q_heads / kv.kv_heads <= 64;
}

bool launch_hopper_attention(const LaunchContext& c, const AttentionTask& task) {
  Params p;
  p.a = task;
  if (!map_cache(task.kv, kBox, &p.k, &p.v)) return false;
  const auto with_type = [&]<typename T>() {
    task.kv.head_dim == 128 ? launch_typed<T, 128>(c, p) : launch_typed<T, 64>(c, p);
  };
  if (task.kv.dtype == DType::bf16) {
    with_type.template operator()<__nv_bfloat16>();
  } else {
    with_type.template operator()<__half>();
  }
  return true;
}

}  // namespace inferno::cuda
