// Attention of many tokens per sequence: tiles of queries against tiles of keys on the tensor cores.
//
// A block has 64 or 128 rows: rows are (token, head of one group), so that all of them share the keys they load. Tiles
// of 64 positions of K and V are prefetched into a double buffer in shared memory while the previous tile is
// multiplied; rows in shared memory are swizzled in pieces of 16 bytes, so that no two rows of a matrix share a bank.
// Scores, maxima and sums are f32; queries, weights and the cache are 16-bit. Blocks with the most keys start first.
#include "backend/cuda/kernels/heads.cuh"
#include "backend/cuda/kernels/launch.cuh"
#include "backend/cuda/kernels/mma.cuh"

namespace inferno::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kKeys = 64;  // positions of a tile
constexpr float kLog2e = 1.4426950408889634F;

// Byte offset of the 16-byte piece `piece` of row `row` in a swizzled array of rows of kDim 16-bit values.
template <int kDim>
__device__ __forceinline__ int swizzled(int row, int piece) {
  return row * kDim * 2 + ((piece ^ (row & 7)) << 4);
}

// Positions [first, first + kKeys) of K and V; rows that no query sees are zero, whatever the cache holds there.
template <typename T, int kDim>
__device__ __forceinline__ void copy_tile(const AttentionTask& a, const int32_t* table, int kv_head, int first,
                                          int visible, uint32_t keys, uint32_t values) {
  constexpr int kPieces = kDim / 8;             // 16-byte pieces of a row
  constexpr int kRowStep = kThreads / kPieces;  // rows that the block copies at once
  const auto* k = static_cast<const T*>(a.kv.k);
  const auto* v = static_cast<const T*>(a.kv.v);
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const int first_row = static_cast<int>(threadIdx.x) / kPieces;
  const int page_size = a.kv.page_size;
  const bool one_page = page_size % kKeys == 0;  // then a tile never crosses a page
  const auto offset = [&](int p) {
    const int64_t page = table[p / page_size];
    return ((page * a.kv.kv_heads + kv_head) * page_size + p % page_size) * kDim + piece * 8;
  };
  const int64_t base = one_page ? offset(first) + first_row * kDim : 0;
#pragma unroll
  for (int i = 0; i < kKeys / kRowStep; ++i) {
    const int row = i * kRowStep + first_row;
    const bool seen = first + row < visible;
    const int64_t at = one_page ? base + i * kRowStep * kDim : offset(min(first + row, visible - 1));
    // The swizzle depends on row % 8 alone, and kRowStep is a multiple of 8.
    const auto to = static_cast<uint32_t>(swizzled<kDim>(row, piece));
    copy_async_16(keys + to, k + at, seen);
    copy_async_16(values + to, v + at, seen);
  }
}

// kRowTiles: 16-row tiles per warp.
template <typename T, int kDim, int kRowTiles>
__global__ void __launch_bounds__(kThreads, 2) prefill_attention_kernel(const __grid_constant__ AttentionTask a) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kRows = kWarps * kRowTiles * 16;
  constexpr int kTileBytes = kKeys * kDim * 2;
  constexpr int kSteps = kDim / 16;   // of the dot product
  constexpr int kColumns = kDim / 8;  // 8-wide tiles of the output
  const uint32_t q_base = shared_address(shared);
  const uint32_t k_base = q_base + kRows * kDim * 2;
  const uint32_t v_base = k_base + 2 * kTileBytes;

  let_next_start();
  wait_for_previous();

  // ---- which sequence, which rows
  const int group = a.q_heads / a.kv.kv_heads;
  const int kv_head = static_cast<int>(blockIdx.y);
  int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  int sequence = 0;
  int first_token = 0;
  int rows = 0;
  for (;; ++sequence) {
    if (sequence >= a.batch.sequences) return;
    first_token = a.batch.q_begin[sequence];
    rows = (a.batch.q_begin[sequence + 1] - first_token) * group;
    const int tiles = (rows + kRows - 1) / kRows;
    if (tile < tiles) break;
    tile -= tiles;
  }
  const int first_row = tile * kRows;
  const int row_count = min(kRows, rows - first_row);
  const int32_t* table = a.batch.block_table + int64_t{sequence} * a.batch.max_pages;
  const int last_token = first_token + (first_row + row_count - 1) / group;
  const int visible = a.batch.pos[last_token] + 1;
  const int free_until = a.batch.pos[first_token + first_row / group] + 1;  // positions that every row sees
  const int tiles = (visible + kKeys - 1) / kKeys;

  copy_tile<T, kDim>(a, table, kv_head, 0, visible, k_base, v_base);
  commit_copies();

  // ---- queries into shared memory
  for (int item = static_cast<int>(threadIdx.x); item < kRows * kDim / 8; item += kThreads) {
    const int row = item / (kDim / 8);
    const int piece = item % (kDim / 8);
    float v[8] = {};
    if (row < row_count) {
      const int r = first_row + row;
      const int64_t head = int64_t{first_token + r / group} * a.q_heads + kv_head * group + r % group;
      load_fresh8(a.q + head * kDim + piece * 8, 8, true, v);
    }
    *reinterpret_cast<uint4*>(shared + swizzled<kDim>(row, piece)) = make_uint4(
        pack_pair<T>(v[0], v[1]), pack_pair<T>(v[2], v[3]), pack_pair<T>(v[4], v[5]), pack_pair<T>(v[6], v[7]));
  }

  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4;
  const int c = lane % 4;
  const int matrix = lane / 8;
  const int matrix_row = lane % 8;
  const int warp_row = warp * kRowTiles * 16;
  int limit[kRowTiles][2];  // positions the row sees
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(warp_row + m * 16 + half * 8 + g, row_count - 1);
      limit[m][half] = a.batch.pos[first_token + (first_row + row) / group] + 1;
    }
  }

  float o[kRowTiles][kColumns][4] = {};
  float row_max[kRowTiles][2];
  float row_sum[kRowTiles][2] = {};
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) row_max[m][0] = row_max[m][1] = -INFINITY;
  const float factor = a.scale * kLog2e;

  for (int j = 0; j < tiles; ++j) {
    const uint32_t keys = k_base + static_cast<uint32_t>(j % 2 * kTileBytes);
    const uint32_t values = v_base + static_cast<uint32_t>(j % 2 * kTileBytes);
    if (j + 1 < tiles) {
      const auto next = static_cast<uint32_t>((j + 1) % 2 * kTileBytes);
      copy_tile<T, kDim>(a, table, kv_head, (j + 1) * kKeys, visible, k_base + next, v_base + next);
      commit_copies();
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();

    // ---- scores
    float s[kRowTiles][kKeys / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t q[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        const int row = warp_row + m * 16 + matrix % 2 * 8 + matrix_row;
        load_matrices(q[m], q_base + static_cast<uint32_t>(swizzled<kDim>(row, step * 2 + matrix / 2)));
      }
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t k[4];
        const int row = n * 16 + matrix / 2 * 8 + matrix_row;
        load_matrices(k, keys + static_cast<uint32_t>(swizzled<kDim>(row, step * 2 + matrix % 2)));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma<T>(s[m][2 * n], q[m][0], q[m][1], q[m][2], q[m][3], k[0], k[1]);
          mma<T>(s[m][2 * n + 1], q[m][0], q[m][1], q[m][2], q[m][3], k[2], k[3]);
        }
      }
    }

    // ---- weights
    const bool masked = (j + 1) * kKeys > free_until;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (masked) {
          const int seen = limit[m][half] - j * kKeys - 2 * c;
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
            if (n * 8 >= seen) s[m][n][half * 2] = -INFINITY;
            if (n * 8 + 1 >= seen) s[m][n][half * 2 + 1] = -INFINITY;
          }
        }
        float tile_max = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
          tile_max = fmaxf(tile_max, fmaxf(s[m][n][half * 2], s[m][n][half * 2 + 1]));
        }
        tile_max = fmaxf(tile_max, __shfl_xor_sync(kFullMask, tile_max, 1));
        tile_max = fmaxf(tile_max, __shfl_xor_sync(kFullMask, tile_max, 2));
        // The first tile has a position for every row, so the maximum is finite from there on.
        const float new_max = fmaxf(row_max[m][half], tile_max * factor);
        const float rescale = fast_exp2(row_max[m][half] - new_max);
        row_max[m][half] = new_max;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& score = s[m][n][half * 2 + i];
            score = fast_exp2(fmaf(score, factor, -new_max));
            sum += score;
          }
        }
        row_sum[m][half] = row_sum[m][half] * rescale + sum;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
          o[m][n][half * 2] *= rescale;
          o[m][n][half * 2 + 1] *= rescale;
        }
      }
    }

    // ---- values
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      uint32_t p[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        p[m][0] = pack_pair<T>(s[m][2 * step][0], s[m][2 * step][1]);
        p[m][1] = pack_pair<T>(s[m][2 * step][2], s[m][2 * step][3]);
        p[m][2] = pack_pair<T>(s[m][2 * step + 1][0], s[m][2 * step + 1][1]);
        p[m][3] = pack_pair<T>(s[m][2 * step + 1][2], s[m][2 * step + 1][3]);
      }
#pragma unroll
      for (int n = 0; n < kColumns / 2; ++n) {
        uint32_t v[4];
        const int row = step * 16 + matrix % 2 * 8 + matrix_row;
        load_matrices_transposed(v, values + static_cast<uint32_t>(swizzled<kDim>(row, n * 2 + matrix / 2)));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma<T>(o[m][2 * n], p[m][0], p[m][1], p[m][2], p[m][3], v[0], v[1]);
          mma<T>(o[m][2 * n + 1], p[m][0], p[m][1], p[m][2], p[m][3], v[2], v[3]);
        }
      }
    }
    __syncthreads();  // the other half of the buffer is free again
  }

#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = row_sum[m][half];
      sum += __shfl_xor_sync(kFullMask, sum, 1);
      sum += __shfl_xor_sync(kFullMask, sum, 2);
      const int row = warp_row + m * 16 + half * 8 + g;
      if (row >= row_count) continue;
      const int r = first_row + row;
      const int64_t head = int64_t{first_token + r / group} * a.q_heads + kv_head * group + r % group;
      const float inverse = 1.0F / sum;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        *reinterpret_cast<float2*>(a.out + head * kDim + n * 8 + 2 * c) =
            make_float2(o[m][n][half * 2] * inverse, o[m][n][half * 2 + 1] * inverse);
      }
    }
  }
}

template <typename T, int kDim, int kRowTiles>
void launch_tiles(const LaunchContext& c, const AttentionTask& task) {
  constexpr int kRows = kWarps * kRowTiles * 16;
  const int group = task.q_heads / task.kv.kv_heads;
  // Every sequence may end in a tile of its own.
  const int tiles = divide_up(task.batch.tokens * group, kRows) + task.batch.sequences;
  const int bytes = kRows * kDim * 2 + 4 * kKeys * kDim * 2;
  launch(c, {dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(task.kv.kv_heads)), dim3(kThreads), bytes},
         prefill_attention_kernel<T, kDim, kRowTiles>, task);
}

template <typename T, int kDim>
void launch_typed(const LaunchContext& c, const AttentionTask& task) {
  // Large tiles read each key for more queries; small ones reach more multiprocessors.
  const int64_t rows = int64_t{task.batch.tokens} * task.q_heads;
  rows >= int64_t{2} * c.sm_count* kWarps * 32 ? launch_tiles<T, kDim, 2>(c, task) : launch_tiles<T, kDim, 1>(c, task);
}

}  // namespace

bool prefill_attention_supports(const KvLayerView& kv, int q_heads) {
  return (kv.dtype == DType::bf16 || kv.dtype == DType::f16) && (kv.head_dim == 64 || kv.head_dim == 128) &&
         q_heads / kv.kv_heads <= kWarps * 16;
}

void launch_prefill_attention(const LaunchContext& c, const AttentionTask& task) {
  const auto with_type = [&]<typename T>() {
    task.kv.head_dim == 128 ? launch_typed<T, 128>(c, task) : launch_typed<T, 64>(c, task);
  };
  if (task.kv.dtype == DType::bf16) {
    with_type.template operator()<__nv_bfloat16>();
  } else {
    with_type.template operator()<__half>();
  }
}

}  // namespace inferno::cuda
