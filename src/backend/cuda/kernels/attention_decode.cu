// Attention of one token per sequence over its cached positions, 16-bit caches with heads of 64 or 128.
//
// A block has one token, one kv head and one split of the positions; its warps process tiles of 16 positions
// round-robin, each with its own running maximum and sum (head_softmax.cuh). A dot product does not depend on the order
// of its terms, so lane c of a row may hold 16 contiguous bytes as its part of the head, and the columns of V may be in
// the order in which lanes load them. The cache of earlier steps is read before wait_for_previous(); the next tile's
// keys are prefetched while this tile's values are used, and vice versa.
//
// Fused: the kernel starts from the raw projections. Each block normalizes and rotates its group's queries; split 0
// also computes this token's key and value, stores them, and adds their term to the sum.
//
// The splits of a head are partial results (decode_merge.cuh). Few sequences on Hopper: two blocks are a cluster and
// send them to each other, which is all that sequences of some hundred positions need. Beyond that, and elsewhere, they
// are in device memory, and the last block to finish merges them.
#include "backend/cuda/kernels/decode_merge.cuh"
#include "backend/cuda/kernels/head_softmax.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {
namespace {

constexpr int kMaxSplits = 32;
constexpr float kLog2e = 1.4426950408889634F;

// Each quarter of a multiprocessor has 16,384 registers: beside two warps of this kernel there is room for the three of
// nine warps that one of them gets of a product of several tokens, 96 registers each (stream_columns.cuh).
constexpr int kFusedRegisters = 112;
constexpr int kMostRegisters = 128;

// Tiles of each warp up to which a sequence has one cluster: more would cost more than merging through device memory.
constexpr int kClusterTiles = 3;

// Positions per split: whole tiles, one for each warp at least, and at most `splits` of them cover the sequence.
template <int kWarps, bool kCluster>
__device__ __forceinline__ int split_span(int positions, const DecodeParams& p) {
  const int tiles = (positions + kTile - 1) / kTile;
  const bool one_cluster = kCluster && tiles <= p.cluster * kWarps * kClusterTiles;
  const int splits = one_cluster ? p.cluster : p.splits;
  return max(kWarps, (tiles + splits - 1) / splits) * kTile;
}

// Four elements of the result, in the type that the next product reads.
__device__ __forceinline__ void store_result(const AttentionTask& a, int64_t at, float4 v) {
  if (a.narrow_out == nullptr) {
    *reinterpret_cast<float4*>(a.out + at) = v;
    return;
  }
  const uint2 pairs = a.narrow_type == DType::bf16
                          ? make_uint2(narrow_pair<__nv_bfloat16>(v.x, v.y), narrow_pair<__nv_bfloat16>(v.z, v.w))
                          : make_uint2(narrow_pair<__half>(v.x, v.y), narrow_pair<__half>(v.z, v.w));
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(a.narrow_out) + at) = pairs;
}

template <typename T, int kDim, int kWarps, bool kFused, bool kCluster>
__global__ void __maxnreg__(kFused ? kFusedRegisters : kMostRegisters)
    decode_attention_kernel(const __grid_constant__ DecodeParams p) {
  // A WarpTile per warp, at the end its o, [kMaxGroup][kDim] floats; then the inbox of a cluster's block.
  extern __shared__ __align__(16) uint8_t tiles[];
  __shared__ __align__(16) T queries[kMaxGroup][kDim];
  __shared__ __align__(16) float own[2][kDim];  // fused: the new key and value
  __shared__ float row_maxima[kWarps + 1][kMaxGroup];
  __shared__ float row_sums[kWarps][kMaxGroup];
  [[maybe_unused]] __shared__ bool last_block;

  const AttentionTask& a = p.a.task;
  const KvLayerView& kv = a.kv;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4;
  const int c = lane % 4;
  const int pair = static_cast<int>(blockIdx.x) / p.splits;  // (token, kv head)
  const int split = static_cast<int>(blockIdx.x) % p.splits;
  const bool spare = pair >= a.batch.tokens * kv.kv_heads;
  const int kv_head = spare ? 0 : pair % kv.kv_heads;
  const int64_t t = spare ? 0 : pair / kv.kv_heads;
  const int group = a.q_heads / kv.kv_heads;

  const int position = a.batch.pos[t];
  const int32_t* table = a.batch.block_table + int64_t{a.batch.seq_of_token[t]} * a.batch.max_pages;
  const int cached = kFused ? position : position + 1;
  const int span = split_span<kWarps, kCluster>(cached, p);
  const int used = spare ? 0 : max(1, (cached + span - 1) / span);
  // Whole clusters: the last block of all may have no positions.
  const int active = kCluster && used > 1 ? (used + 1) / 2 * 2 : used;
  const int begin = split * span;
  const int end = min(begin + span, cached);
  const int first_tile = begin / kTile + warp;
  const int end_tile = (end + kTile - 1) / kTile;

  using Tile = WarpTile<T, kDim>;
  static_assert(Tile::kKeyBytes >= kMaxGroup * kDim * static_cast<int>(sizeof(float)));
  const Tile tile{tiles + warp * Tile::kBytes + lane * 16, lane};
  if constexpr (kCluster) {
    if (threadIdx.x == 0 && split < active && active > 1) {
      ClusterInbox<kDim>(shared_address(tiles) + kWarps * Tile::kBytes, group, split % 2).open();
    }
    arrive_cluster();
  }
  // One commit group each, empty after the last tile.
  int64_t base = 0;
  const auto prefetch_keys = [&](int index) {
    if (index < end_tile) {
      base = Tile::base(p, table, kv_head, index * kTile);
      tile.prefetch_keys(kv, base, end - index * kTile - 1);
    }
    commit_copies();
  };
  const auto prefetch_values = [&](int index) {
    if (index < end_tile) tile.prefetch_values(kv, base, end - index * kTile - 1);
    commit_copies();
  };
  // Not fused, the last position was written by the previous kernel: nothing may be read before the wait.
  if (kFused && split < active) {
    prefetch_keys(first_tile);
    prefetch_values(first_tile);
  }
  // Heads to compute: the group's queries, then key and value.
  const int head_count = split == 0 ? group + 2 : group;
  constexpr int kWords = kDim / 64;  // pairs of values of a head that a lane has
  HeadFactors<kDim> factors;
  int slot = -1;
  int64_t own_row = 0;
  if constexpr (kFused) {
    if (warp < head_count) load_factors<kDim>(factors, p, group, warp, position, lane);
    slot = a.batch.slot[t];
    own_row = ((int64_t{slot >> p.page_shift} * kv.kv_heads + kv_head) << p.page_shift) + (slot & (kv.page_size - 1));
  }
#pragma unroll 1
  for (int i = group * kDim / 2 + static_cast<int>(threadIdx.x); i < kMaxGroup * kDim / 2; i += kWarps * kWarp) {
    reinterpret_cast<uint32_t*>(queries)[i] = 0;
  }
  let_next_start();
  if constexpr (kCluster) wait_cluster();  // the other block's inbox is open
  wait_for_previous();
  if (split >= active) return;
  if constexpr (!kFused) {
    prefetch_keys(first_tile);
    prefetch_values(first_tile);
  }

  // ---- queries, and the token's own key and value
  if constexpr (kFused) {
#pragma unroll 1
    for (int h = warp; h < head_count; h += kWarps) {
      if (h != warp) load_factors<kDim>(factors, p, group, h, position, lane);
      float2 v[kWords];
      make_head<kDim>(v, p, group, kv_head, t, h, factors, lane);
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const int i = w * 64 + 2 * lane;
        if (h < group) {
          *reinterpret_cast<uint32_t*>(&queries[h][i]) = narrow_pair<T>(v[w].x, v[w].y);
        } else {
          const uint32_t pair = pack_pair<T>(v[w].x, v[w].y);
          store_pair(&own[h - group][i], widen_pair<T>(pair));
          if (slot >= 0) {
            *reinterpret_cast<uint32_t*>(static_cast<T*>(h == group ? kv.k : kv.v) + own_row * kDim + i) = pair;
          }
        }
      }
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < group * kDim; i += kWarps * kWarp) {
      queries[i / kDim][i % kDim] = narrow<T>(load_fresh(a.q + (t * a.q_heads + kv_head * group) * kDim + i));
    }
  }
  __syncthreads();
  if constexpr (kFused) {
    if (split == 0) {  // the token's own position: score s, weight 1 at maximum s
#pragma unroll 1
      for (int h = kWarps - 1 - warp; h < group; h += kWarps) {  // the last warps have the fewest tiles
        float score = 0;
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
          const int i = w * 64 + 2 * lane;
          const float2 q = widen_pair<T>(*reinterpret_cast<const uint32_t*>(&queries[h][i]));
          const float2 k = *reinterpret_cast<const float2*>(&own[0][i]);
          score = fmaf(q.x, k.x, fmaf(q.y, k.y, score));
        }
        score = warp_sum(score) * a.scale * kLog2e;
        if (lane == 0) row_maxima[kWarps][h] = score;
      }
    }
  }

  // ---- the cached positions
  uint4 query[kDim / 32];
#pragma unroll
  for (int j = 0; j < kDim / 32; ++j) query[j] = *reinterpret_cast<const uint4*>(&queries[g][j * 32 + c * 8]);
  const float factor = a.scale * kLog2e;
  float o[kDim / 64][4][4] = {};  // columns 64 h + 8 g + 2 m and the next, of heads 2c and 2c + 1
  HeadSoftmax softmax;
#pragma unroll 1
  for (int i = first_tile; i < end_tile; i += kWarps) {
    float even[4] = {};
    float odd[4] = {};
    wait_copies<1>();
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) {
      const uint4 near = tile.keys(0, j);
      const uint4 far = tile.keys(1, j);
      mma<T>(even, near.x, far.x, near.y, far.y, query[j].x, query[j].y);
      mma<T>(odd, near.z, far.z, near.w, far.w, query[j].z, query[j].w);
    }
    prefetch_keys(i + kWarps);
    float score[4];  // positions g, g, g + 8, g + 8
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      score[n] = i * kTile + g + n / 2 * 8 < end ? (even[n] + odd[n]) * factor : -INFINITY;
    }
    uint32_t weights[2];
    const float2 rescale = softmax.add<T>(score, weights);
    wait_copies<1>();
#pragma unroll
    for (int h = 0; h < kDim / 64; ++h) {
      uint32_t v0[4], v1[4], v2[4], v3[4];
      const auto load_values = [&](uint32_t* v, int position) {
        const uint4 piece = tile.values(h, position);
        v[0] = piece.x, v[1] = piece.y, v[2] = piece.z, v[3] = piece.w;
      };
      load_values(v0, 0);
      load_values(v1, 1);
      load_values(v2, 2);
      load_values(v3, 3);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        // Two columns of the lane's eight, each as pairs of two positions.
        const auto low = [](uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x5410U); };
        const auto high = [](uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x7632U); };
        HeadSoftmax::multiply<T>(o[h][m], rescale, low(v0[m], v1[m]), high(v0[m], v1[m]), low(v2[m], v3[m]),
                                 high(v2[m], v3[m]), weights);
      }
    }
    prefetch_values(i + kWarps);
  }
  softmax.finish();
  const auto sums_of = [&](int w) { return reinterpret_cast<float*>(tiles + w * Tile::kBytes); };
  __syncwarp();
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int head = 2 * c + n;
    if (head >= group) break;
    float* sums = sums_of(warp) + head * kDim + g * 8;
#pragma unroll
    for (int h = 0; h < kDim / 64; ++h) {
#pragma unroll
      for (int m = 0; m < 4; m += 2) {
        *reinterpret_cast<float4*>(sums + h * 64 + m * 2) =
            make_float4(o[h][m][n], o[h][m][n + 2], o[h][m + 1][n], o[h][m + 1][n + 2]);
      }
    }
    if (g == 0) row_maxima[warp][head] = softmax.high[n], row_sums[warp][head] = softmax.sum[n];
  }
  __syncthreads();

  // ---- the block's warps, then the splits
  const bool with_own = kFused && split == 0;
  const auto combined = [&](int i) {  // columns i .. i + 3
    const int row = i / kDim;
    PartialRow r;
    r.high = with_own ? row_maxima[kWarps][row] : -INFINITY;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) r.high = fmaxf(r.high, row_maxima[w][row]);
    if (with_own) {
      r.add(fast_exp2(row_maxima[kWarps][row] - r.high), 1, *reinterpret_cast<const float4*>(&own[1][i % kDim]));
    }
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float share = r.high == -INFINITY ? 0.0F : fast_exp2(row_maxima[w][row] - r.high);
      r.add(share, row_sums[w][row], *reinterpret_cast<const float4*>(sums_of(w) + i));
    }
    return r;
  };
  static_assert(!kCluster || 4 * kWarps * kWarp >= kMaxGroup * kDim, "one iteration");
  const int columns = group * kDim;
  const int stride = 4 * kWarps * kWarp;
  const int mine = 4 * static_cast<int>(threadIdx.x);
  const int64_t first_out = (t * a.q_heads + kv_head * group) * kDim;
  const auto store = [&](int i, const PartialRow& r) { store_result(a, first_out + i, r.result()); };
  if (active == 1) {
    for (int i = mine; i < columns; i += stride) store(i, combined(i));
    return;
  }
  const int64_t index = t * kv.kv_heads + kv_head;
  const SplitPartials<kDim> partials{p.a.partials + index * p.splits * group * SplitPartials<kDim>::kFloats, group};
  if constexpr (kCluster) {
    const ClusterInbox<kDim> inbox(shared_address(tiles) + kWarps * Tile::kBytes, group, split % 2);
    const bool finishes = mine < columns && mine / inbox.half == inbox.rank;
    PartialRow r;
    if (mine < columns) r = combined(mine);
    if (mine < columns && !finishes) inbox.put(mine, r);
    __syncwarp();  // all has been sent before any lane waits
    if (finishes) r = inbox.merged(mine, r);
    if (active == 2) {
      if (finishes) store(mine, r);
      return;
    }
    if (finishes) partials.put(split / 2, mine, r);
    if (!partials.is_last(p.a.counters + 2 * index + inbox.rank, active / 2, &last_block)) return;
    if (finishes) store(mine, partials.get(active / 2, mine));
  } else {
    for (int i = mine; i < columns; i += stride) partials.put(split, i, combined(i));
    if (!partials.is_last(p.a.counters + index, active, &last_block)) return;
    for (int i = mine; i < columns; i += stride) store(i, partials.get(active, i));
  }
}

// Few sequences: one block per multiprocessor, of more warps, so that short contexts need no second split and blocks of
// the next kernel fit beside it.
constexpr int kFewTokens = 16;

int split_count(const LaunchContext& c, const DecodeParams& p, bool few) {
  const int pairs = p.a.task.batch.tokens * p.a.task.kv.kv_heads;
  const int wanted = few ? c.sm_count / pairs / p.cluster * p.cluster : divide_up(2 * c.sm_count, pairs);
  return wanted < 1 ? 1 : wanted > kMaxSplits ? kMaxSplits : wanted;
}

template <typename T, int kDim, int kWarps, bool kCluster>
void launch_typed(const LaunchContext& c, const DecodeParams& p) {
  const AttentionTask& task = p.a.task;
  int blocks = p.splits * task.kv.kv_heads * task.batch.tokens;
  int shared_bytes = kWarps * WarpTile<T, kDim>::kBytes;
  if constexpr (kCluster) {
    // Padded to one block per multiprocessor (see kAttentionSlot); the spare ones exit at once. Larger clusters would
    // not cover all multiprocessors, and have to wait for room on all of theirs.
    constexpr int kStaticBytes = 4 * 1024;
    const int places = c.sm_count / p.cluster * p.cluster;
    blocks = blocks < places ? places : blocks;
    shared_bytes += ClusterInbox<kDim>::kBytes;
    if (shared_bytes < kAttentionSlot - kStaticBytes) shared_bytes = kAttentionSlot - kStaticBytes;
  }
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kWarps * kWarp), shared_bytes, p.cluster};
  if (p.a.fused) {
    launch(c, shape, decode_attention_kernel<T, kDim, kWarps, true, kCluster>, p);
  } else {
    launch(c, shape, decode_attention_kernel<T, kDim, kWarps, false, kCluster>, p);
  }
}

}  // namespace

bool decode_attention_supports(const KvLayerView& kv, int q_heads) {
  return (kv.dtype == DType::bf16 || kv.dtype == DType::f16) && (kv.head_dim == 64 || kv.head_dim == 128) &&
         kv.page_size % kTile == 0 && (kv.page_size & (kv.page_size - 1)) == 0 && q_heads / kv.kv_heads <= kMaxGroup;
}

// (token, kv head) pairs that are split, of which there are fewer than 2 * sm_count (see split_count), and their
// splits.
int64_t decode_counters(const LaunchContext& c) {
  return int64_t{2} * c.sm_count;
}
int64_t decode_partial_floats(const LaunchContext& c, int q_heads, const KvLayerView& kv) {
  const int64_t splits = int64_t{4} * c.sm_count;  // divide_up(2 * sm_count, pairs) * pairs < 2 * sm_count + pairs
  return splits * (q_heads / kv.kv_heads) * (kv.head_dim + kv.head_dim / 2);
}

void launch_decode_attention(const LaunchContext& c, const DecodeAttention& task) {
  DecodeParams p;
  p.a = task;
  p.rope_table = task.rope.table.f32();
  while (1 << p.page_shift < task.task.kv.page_size) ++p.page_shift;
  const int tokens = task.task.batch.tokens;
  const bool few = c.hopper && tokens < kFewTokens;
  p.cluster = few && 2 * tokens * task.task.kv.kv_heads <= c.sm_count ? 2 : 1;
  p.splits = split_count(c, p, few);
  const auto with_type = [&]<typename T>() {
    if (task.task.kv.head_dim == 128) {
      few ? launch_typed<T, 128, 8, true>(c, p) : launch_typed<T, 128, 4, false>(c, p);
    } else {
      few ? launch_typed<T, 64, 8, true>(c, p) : launch_typed<T, 64, 4, false>(c, p);
    }
  };
  if (task.task.kv.dtype == DType::bf16) {
    with_type.template operator()<__nv_bfloat16>();
  } else {
    with_type.template operator()<__half>();
  }
}

}  // namespace inferno::cuda
