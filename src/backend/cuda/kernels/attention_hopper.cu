// Attention of many tokens per sequence with Hopper's warpgroup products: the fast path of attention_prefill.cu.
//
// A block has 64 rows for each of two consumer warpgroups: rows are (token, head of one group), so that all of them
// share the keys they load. A producer warp keeps TMA copies of tiles of 128 positions of K and V in flight into a
// double buffer. The consumers' loop is software-pipelined: the asynchronous product of the next tile's keys runs while
// the scores of this one become weights, and the weights are multiplied with their values one iteration later. Scores,
// maxima and sums are f32; queries, weights and the cache are 16-bit. Blocks with the most keys start first. Where
// there are too few rows for all multiprocessors, two blocks of a cluster have the same rows and every second tile
// each, and merge their results.
//
// Sequences that decode may be another kernel's, which is launched after this one and runs beside it, on the
// multiprocessors that have none of these blocks: it starts once all blocks here have seen the end of the kernel
// before, and ends after this one.
#include "backend/cuda/kernels/cluster.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/tensor_map.cuh"

namespace inferno::cuda {
namespace {

constexpr int kKeys = 128;  // positions of a tile
constexpr int kBox = kMapRows;
constexpr int kWarpgroup = 128;  // threads
constexpr int kTileRow = 128;    // bytes of a row of a tile: 64 values
constexpr int kStages = 2;
constexpr int kConsumers = 2;
constexpr int kRows = kConsumers * 64;  // of a block
constexpr float kLog2e = 1.4426950408889634F;

struct Params {
  AttentionTask a;
  CUtensorMap k, v;
};

template <int kDim>
struct Layout {
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
  int rank;            // in the cluster
  int group;           // heads that share keys
  uint32_t per_group;  // 2^32 / group, rounded up: a row times this is its token
  int kv_head, first_token, first_row, row_count, visible, free_until;
  const int32_t* table;

  // Of a row of the block: its token, and which of the step's query heads it is, in [tokens * q_heads].
  [[nodiscard]] __device__ __forceinline__ int token_of(int row) const {
    const auto r = static_cast<uint32_t>(first_row + row);
    return first_token + static_cast<int>(group == 1 ? r : __umulhi(r, per_group));
  }
  [[nodiscard]] __device__ __forceinline__ int64_t head_of(int row, int q_heads) const {
    const int token = token_of(row);
    return int64_t{token} * q_heads + kv_head * group + first_row + row - (token - first_token) * group;
  }
};

template <int kSplits>
__device__ __forceinline__ bool find_tile(const AttentionTask& a, BlockTile& p) {
  p.group = a.q_heads / a.kv.kv_heads;
  p.per_group = 0xffffffffU / static_cast<uint32_t>(p.group) + 1;
  const int block = static_cast<int>(blockIdx.x) / kSplits;
  p.rank = static_cast<int>(blockIdx.x) % kSplits;
  p.kv_head = block % a.kv.kv_heads;
  int tile = (static_cast<int>(gridDim.x) / kSplits - 1 - block) / a.kv.kv_heads;
  int rows = 0;
  int sequence = a.first_sequence;
  for (;; ++sequence) {
    if (sequence >= a.batch.sequences) return false;
    p.first_token = a.batch.q_begin[sequence];
    rows = (a.batch.q_begin[sequence + 1] - p.first_token) * p.group;
    const int tiles = (rows + kRows - 1) / kRows;
    if (tile < tiles) break;
    tile -= tiles;
  }
  p.first_row = tile * kRows;
  p.row_count = min(kRows, rows - p.first_row);
  p.visible = a.batch.pos[p.token_of(p.row_count - 1)] + 1;
  p.free_until = a.batch.pos[p.token_of(0)] + 1;  // positions that every row sees
  p.table = a.batch.block_table + int64_t{sequence} * a.batch.max_pages;
  return true;
}

// After the wait the kernel beside this one may start: it reads what the kernel before wrote, too.
__device__ __forceinline__ void begin(const AttentionTask& a) {
  wait_for_previous();
  if (a.first_sequence > 0) let_next_start();
}

// One thread: tiles of K and V into the stages as they become free. It knows where the first one is before it waits for
// the previous kernel.
template <int kDim, int kSplits>
__device__ __forceinline__ void produce(const Params& p, const BlockTile& work, uint32_t keys, uint32_t values,
                                        uint32_t barriers) {
  using L = Layout<kDim>;
  const KvLayerView& kv = p.a.kv;
  const int tiles = (work.visible + kKeys - 1) / kKeys;
  for (int j = work.rank; j < tiles; j += kSplits) {
    const int stage = j / kSplits % kStages;
    const int parity = j / kSplits / kStages % 2;
    int rows[kKeys / kBox];
    int boxes = 0;
#pragma unroll
    for (int b = 0; b < kKeys / kBox; ++b) {
      const int first = j * kKeys + b * kBox;
      if (first >= work.visible) break;
      rows[b] = (work.table[first / kv.page_size] * kv.kv_heads + work.kv_head) * kv.page_size + first % kv.page_size;
      ++boxes;
    }
    if (j == work.rank) begin(p.a);
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
    const float new_max = fmaxf(row_max[half], tile_max * factor);
    const float shift = new_max == -INFINITY ? 0.0F : new_max;  // no position so far: all weights are zero
    rescale[half] = fast_exp2(row_max[half] - shift);
    row_max[half] = new_max;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = s[n * 4 + half * 2 + i];
        score = fast_exp2(fmaf(score, factor, -shift));
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

// The queries of one warpgroup: rows `from`, from + 1, ... of the block, into its tiles. A branch per row would make
// the code that runs once much longer, and it is bound by the loading of instructions.
template <typename T, int kDim>
__device__ __forceinline__ void load_queries(const AttentionTask& a, const BlockTile& work, int from, uint8_t* to) {
  constexpr int kPieces = kDim / 8;
  constexpr int kStep = kWarpgroup / kPieces;  // rows at a time
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const int first = static_cast<int>(threadIdx.x) % kWarpgroup / kPieces;
  uint8_t* tile = to + piece / 8 * 64 * kTileRow;
  const auto put = [&](int row, uint4 packed) { *reinterpret_cast<uint4*>(tile + swizzled(row, piece % 8)) = packed; };
  const auto head_of = [&](int row) { return work.head_of(min(from + row, work.row_count - 1), a.q_heads); };
  if (a.narrow_q != nullptr) {
    const T* q = static_cast<const T*>(a.narrow_q) + piece * 8;
    uint4 packed[64 / kStep];
#pragma unroll
    for (int i = 0; i < 64 / kStep; ++i) packed[i] = load_fresh_16(q + head_of(first + i * kStep) * kDim);
#pragma unroll
    for (int i = 0; i < 64 / kStep; ++i) put(first + i * kStep, packed[i]);
    return;
  }
#pragma unroll 2
  for (int row = first; row < 64; row += kStep) {
    float v[8];
    load_fresh8(a.q + head_of(row) * kDim + piece * 8, 8, true, v);
    put(row, make_uint4(pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]),
                        pack_pair<T>(v[6], v[7])));
  }
}

// Epilogue: pieces of eight columns from `first` on, of the results of one warpgroup, 4 n + 2 half and the next of a
// thread; 16-bit ones pass through its query tiles, so that stores are 16 bytes wide.
template <int kDim, int kPieces>
__device__ __forceinline__ void store_results(const AttentionTask& a, const BlockTile& work, int from, int first,
                                              const float* o, const float* row_sum, uint8_t* shared, int barrier) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int my_row = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp * 16 + lane / 4;
  const float inverse[2] = {1.0F / row_sum[0], 1.0F / row_sum[1]};
  if (a.narrow_out == nullptr) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = from + my_row + half * 8;
      if (row >= work.row_count) continue;
      float* to = a.out + work.head_of(row, a.q_heads) * kDim + first * 8 + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kPieces; ++n) {
        *reinterpret_cast<float2*>(to + n * 8) =
            make_float2(o[n * 4 + half * 2] * inverse[half], o[n * 4 + half * 2 + 1] * inverse[half]);
      }
    }
    return;
  }
  const auto stage = [&](auto pack) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = my_row + half * 8;
#pragma unroll
      for (int n = 0; n < kPieces; ++n) {
        uint8_t* tile = shared + (first + n) / 8 * 64 * kTileRow;
        *reinterpret_cast<uint32_t*>(tile + swizzled(row, (first + n) % 8) + lane % 4 * 4) =
            pack(o[n * 4 + half * 2] * inverse[half], o[n * 4 + half * 2 + 1] * inverse[half]);
      }
    }
  };
  if (a.narrow_type == DType::bf16) {
    stage([](float x, float y) { return pack_pair<__nv_bfloat16>(x, y); });
  } else {
    stage([](float x, float y) { return narrow_pair<__half>(x, y); });
  }
  sync_barrier(barrier, kWarpgroup);
  constexpr int kStep = kWarpgroup / kPieces;  // rows at a time
  const int piece = first + static_cast<int>(threadIdx.x) % kPieces;
  const uint8_t* tile = shared + piece / 8 * 64 * kTileRow;
  auto* out = static_cast<uint8_t*>(a.narrow_out) + piece * 16;
#pragma unroll 2
  for (int row = static_cast<int>(threadIdx.x) % kWarpgroup / kPieces; row < 64; row += kStep) {
    if (from + row >= work.row_count) break;
    *reinterpret_cast<uint4*>(out + work.head_of(from + row, a.q_heads) * (kDim * 2)) =
        *reinterpret_cast<const uint4*>(tile + swizzled(row, piece % 8));
  }
}

// The results of a thread and of its counterpart in the other block, which has had other positions: each gives half of
// the columns to the other one, and merges and stores the other half. `exchange`: [four values][consumer thread].
template <int kDim>
__device__ __forceinline__ void merge_results(const AttentionTask& a, const BlockTile& work, int from, float* o,
                                              const float* row_max, float* row_sum, uint8_t* queries, uint32_t exchange,
                                              int barrier) {
  constexpr int kHalf = kDim / 4;  // values of half of the columns
  const auto place = [&](int four) {
    return exchange + static_cast<uint32_t>((four * kConsumers * kWarpgroup + static_cast<int>(threadIdx.x)) * 16);
  };
  const auto put = [&](int four, float x, float y, float z, float w) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(place(four)), "f"(x), "f"(y), "f"(z), "f"(w)
                 : "memory");
  };
  float kept[kHalf];
  float given[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    kept[i] = work.rank == 0 ? o[i] : o[kHalf + i];
    given[i] = work.rank == 0 ? o[kHalf + i] : o[i];
  }
#pragma unroll
  for (int i = 0; i < kHalf; i += 4) put(i / 4, given[i], given[i + 1], given[i + 2], given[i + 3]);
  put(kHalf / 4, row_max[0], row_max[1], row_sum[0], row_sum[1]);
  arrive_cluster();
  wait_cluster();
  const auto get = [&](int four) { return load_from(address_in(place(four), 1 - work.rank)); };
  const float4 other = get(kHalf / 4);
  const float other_max[2] = {other.x, other.y};
  const float other_sum[2] = {other.z, other.w};
  float mine[2];
  float theirs[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float max = fmaxf(row_max[half], other_max[half]);  // one of them has seen a position
    mine[half] = fast_exp2(row_max[half] - max);
    theirs[half] = fast_exp2(other_max[half] - max);
    row_sum[half] = row_sum[half] * mine[half] + other_sum[half] * theirs[half];
  }
#pragma unroll
  for (int i = 0; i < kHalf; i += 4) {
    const float4 part = get(i / 4);
    kept[i] = kept[i] * mine[0] + part.x * theirs[0];
    kept[i + 1] = kept[i + 1] * mine[0] + part.y * theirs[0];
    kept[i + 2] = kept[i + 2] * mine[1] + part.z * theirs[1];
    kept[i + 3] = kept[i + 3] * mine[1] + part.w * theirs[1];
  }
  store_results<kDim, kDim / 16>(a, work, from, work.rank * (kDim / 16), kept, row_sum, queries, barrier);
}

template <typename T, int kDim, int kSplits>
__device__ __forceinline__ void consume(const Params& p, const BlockTile& work, uint8_t* shared, uint32_t barriers) {
  using L = Layout<kDim>;
  const AttentionTask& a = p.a;
  const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / kWarp;
  const int from = consumer * 64;
  constexpr int kAllConsumers = 1;  // named barrier of all consumers
  const int own = 2 + consumer;
  uint8_t* my_queries = shared + consumer * 64 * kDim * 2;
  int limit[2];  // positions the row sees
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(from + warp * 16 + half * 8 + lane / 4, work.row_count - 1);
    limit[half] = a.batch.pos[work.token_of(row)] + 1;
  }
  begin(a);
  load_queries<T, kDim>(a, work, from, my_queries);
  fence_async_shared();
  sync_barrier(own, kWarpgroup);

  const auto stage_of = [](int j) { return j / kSplits % kStages; };
  const auto parity_of = [](int j) { return j / kSplits / kStages % 2; };
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
    const uint32_t tile = keys + static_cast<uint32_t>(stage_of(j) * L::kKeyBytes);
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const uint32_t at = static_cast<uint32_t>(step % 4 * 32);
      multiply(T(), s, operand(queries + static_cast<uint32_t>(step / 4 * 64 * kTileRow) + at),
               operand(tile + static_cast<uint32_t>(step / 4 * L::kKeyHalf) + at), step > 0);
    }
    wgmma_commit();
  };
  const auto accumulate = [&](int j) {  // o += weights * v, asynchronous
    const uint32_t tile = values + static_cast<uint32_t>(stage_of(j) * L::kKeyBytes);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      multiply_transposed(T(), o, weights[step],
                          operand_transposed(tile + static_cast<uint32_t>(step * 16 * kTileRow), L::kKeyHalf),
                          j >= kSplits || step > 0);
    }
    wgmma_commit();
  };
  const auto slot = [&](int j) { return static_cast<uint32_t>(stage_of(j) * 8); };
  const auto release = [&](uint32_t barrier) {
    if (lane == 0) arrive(barrier);
  };

  int last = work.rank;
  if (last < tiles) {
    wait_barrier(barriers, 0);
    wgmma_fence();
    score(last);
    wgmma_wait<0>();
    pin(s);
    release(barriers + 16);
    online_softmax(s, factor, (last + 1) * kKeys > work.free_until, limit, last * kKeys, column, row_max, row_sum,
                   rescale);
    pack_weights<T>(s, weights);
  }
  for (int j = last + kSplits; j < tiles; j += kSplits) {
    wait_barrier(barriers + slot(j), parity_of(j));
    wgmma_fence();
    score(j);
    wait_barrier(barriers + 32 + slot(last), parity_of(last));
    wgmma_fence();
    accumulate(last);
    wgmma_wait<1>();
    pin(s);
    release(barriers + 16 + slot(j));
    online_softmax(s, factor, (j + 1) * kKeys > work.free_until, limit, j * kKeys, column, row_max, row_sum, rescale);
    wgmma_wait<0>();
    pin(o);
    release(barriers + 48 + slot(last));
#pragma unroll
    for (int i = 0; i < kDim / 2; ++i) o[i] *= rescale[i / 2 % 2];
    pack_weights<T>(s, weights);
    last = j;
  }
  if (last < tiles) {
    wait_barrier(barriers + 32 + slot(last), parity_of(last));
    // Rows that no query sees are zero, whatever the cache holds there: their weights are zero, but 0 * NaN is not.
    if (last == tiles - 1 && work.visible % kKeys != 0) {
      uint8_t* tile = shared + L::kQueryBytes + (kStages + stage_of(last)) * L::kKeyBytes;
      const int seen = work.visible % kKeys;
      for (int item = static_cast<int>(threadIdx.x); item < (kKeys - seen) * kDim / 8;
           item += kConsumers * kWarpgroup) {
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
  } else {
#pragma unroll
    for (float& v : o) v = 0;
  }
#pragma unroll
  for (float& sum : row_sum) {
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    sum += __shfl_xor_sync(kFullMask, sum, 2);
  }
  if constexpr (kSplits == 1) {
    store_results<kDim, kDim / 8>(a, work, from, 0, o, row_sum, my_queries, own);
  } else {
    sync_barrier(kAllConsumers, kConsumers * kWarpgroup);  // nobody reads tiles any more
    merge_results<kDim>(a, work, from, o, row_max, row_sum, my_queries, keys, own);
  }
}

template <typename T, int kDim, int kSplits>
__global__ void __launch_bounds__((kConsumers + 1) * kWarpgroup, 1)
    hopper_attention_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t unaligned[];
  using L = Layout<kDim>;
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
  if (p.a.first_sequence == 0) let_next_start();
  BlockTile work;
  const bool exists = find_tile<kSplits>(p.a, work);  // of the batch, which no kernel writes
  if (!exists) {                                      // both blocks of a cluster
    begin(p.a);
    return;
  }
  if (threadIdx.x >= kConsumers * kWarpgroup) {
    release_registers<24>();
    if (threadIdx.x < kConsumers * kWarpgroup + kWarp && elect_one()) {
      const uint32_t keys = shared_address(shared) + L::kQueryBytes;
      produce<kDim, kSplits>(p, work, keys, keys + kStages * L::kKeyBytes, barriers);
    }
    wait_for_previous();
    if constexpr (kSplits > 1) {  // the results are exchanged
      arrive_cluster();
      wait_cluster();
    }
  } else {
    claim_registers<240>();
    consume<T, kDim, kSplits>(p, work, shared, barriers);
  }
  if constexpr (kSplits > 1) {
    arrive_cluster_relaxed();  // a block's shared memory is read until here
    wait_cluster();
  }
#endif
}

template <typename T, int kDim>
void launch_typed(const LaunchContext& c, const Params& p) {
  const StepBatch& batch = p.a.batch;
  const int decodes = p.a.first_sequence;
  const int rows = (batch.tokens - decodes) * (p.a.q_heads / p.a.kv.kv_heads);
  // Every sequence may end in a tile of its own.
  const int tiles = (divide_up(rows, kRows) + batch.sequences - decodes - 1) * p.a.kv.kv_heads;
  // Beside decodes only where it saves more time than they take: they run after clusters on all multiprocessors.
  const bool splits = 2 * tiles <= c.sm_count && (decodes == 0 || batch.deep);
  const auto run = [&]<int kSplits>() {
    launch(c,
           {dim3(static_cast<unsigned>(tiles * kSplits)), dim3((kConsumers + 1) * kWarpgroup), Layout<kDim>::kBytes,
            kSplits},
           hopper_attention_kernel<T, kDim, kSplits>, p);
  };
  splits ? run.template operator()<2>() : run.template operator()<1>();
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
