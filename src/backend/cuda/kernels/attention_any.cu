// Kernels for every head size and cache type: rotation and store of plain heads, and an attention with every argument,
// the fallback of the tensor-core kernels.
#include "backend/cuda/kernels/activation_functions.cuh"
#include "backend/cuda/kernels/heads.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {
namespace {

// ---- rotation and store: one warp per (token, head); heads are q, then k, then v

constexpr int kStoreWarps = 4;

template <typename T>
__global__ void rope_store_kernel(const __grid_constant__ RopeStore a) {
  __shared__ float heads[kStoreWarps][kMaxHeadDim];
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int d = a.kv.head_dim;
  const int per_token = a.q_heads + 2 * a.kv.kv_heads;
  const int64_t item = int64_t{blockIdx.x} * kStoreWarps + warp;
  if (item >= int64_t{a.batch.tokens} * per_token) return;
  const int64_t t = item / per_token;
  const int h = static_cast<int>(item % per_token);
  const bool query = h < a.q_heads;
  const bool key = !query && h < a.q_heads + a.kv.kv_heads;
  const int kv_head = query ? 0 : key ? h - a.q_heads : h - a.q_heads - a.kv.kv_heads;
  const auto* from = static_cast<const T*>(query ? a.raw.q : key ? a.raw.k : a.raw.v);
  from += query ? t * a.raw.q_stride + h * d : t * a.raw.kv_stride + kv_head * d;
  float* head = heads[warp];
  for (int i = lane; i < d; i += kWarp) head[i] = widen(from[i]);
  __syncwarp();
  if (query || key) {
    norm_head(head, query ? a.norms.q : a.norms.k, a.norms.eps, d, lane);
    const float* cos_sin = static_cast<const float*>(a.rope.table.data) + int64_t{a.batch.pos[t]} * a.rope.rotated_dims;
    const bool half_split = a.rope.pairing == RopePairing::half_split;
    float rotated_values[kMaxHeadDim / kWarp];
#pragma unroll
    for (int j = 0; j < kMaxHeadDim / kWarp; ++j) {
      const int i = j * kWarp + lane;
      if (i < d) rotated_values[j] = rotated(head, i, cos_sin, a.rope.rotated_dims, half_split);
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kMaxHeadDim / kWarp; ++j) {
      const int i = j * kWarp + lane;
      if (i >= d) continue;
      if (query) {
        static_cast<float*>(a.q_out)[(t * a.q_heads + h) * d + i] = rotated_values[j];
      } else {
        head[i] = rotated_values[j];
      }
    }
    __syncwarp();
  }
  const int64_t slot = a.batch.slot[t];
  if (!query && slot >= 0) store_cache_row(a.kv, key ? a.kv.k : a.kv.v, slot, kv_head, head, lane);
}

// The same for 16-bit caches and heads of 64 or 128 that rotate as a whole, all in registers: a warp has some heads of
// one token and reads all of them before it works on the first.
constexpr int kHeadsPerWarp = 8;

template <typename Raw, typename T, typename Q, int kDim>
__global__ void rope_store_fast_kernel(const __grid_constant__ RopeStore a) {
  let_next_start();
  wait_for_previous();
  constexpr int kWords = kDim / 64;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int per_token = a.q_heads + 2 * a.kv.kv_heads;
  const int parts = (per_token + kHeadsPerWarp - 1) / kHeadsPerWarp;
  const auto item = static_cast<int>(blockIdx.x * kStoreWarps + threadIdx.x / kWarp);
  const int64_t t = item / parts;
  if (t >= a.batch.tokens) return;
  const int first = item % parts * kHeadsPerWarp;
  const int first_value = a.q_heads + a.kv.kv_heads;
  const bool half_split = a.rope.pairing == RopePairing::half_split;
  const auto* raw_q = static_cast<const Raw*>(a.raw.q) + t * a.raw.q_stride + 2 * lane;
  const auto* raw_k = static_cast<const Raw*>(a.raw.k) + t * a.raw.kv_stride + 2 * lane;
  const auto* raw_v = static_cast<const Raw*>(a.raw.v) + t * a.raw.kv_stride + 2 * lane;

  float2 v[kHeadsPerWarp][kWords];
#pragma unroll
  for (int i = 0; i < kHeadsPerWarp; ++i) {
    const int h = min(first + i, per_token - 1);
    const Raw* from = h < a.q_heads     ? raw_q + h * kDim
                      : h < first_value ? raw_k + (h - a.q_heads) * kDim
                                        : raw_v + (h - first_value) * kDim;
#pragma unroll
    for (int w = 0; w < kWords; ++w) v[i][w] = load_pair(from + w * 64);
  }
  const float* cos_sin = static_cast<const float*>(a.rope.table.data) + int64_t{a.batch.pos[t]} * kDim;
  HeadFactors<kDim> factors;
  bool for_query = first < a.q_heads;
  factors.load(for_query ? a.norms.q : a.norms.k, cos_sin, half_split, lane);
  const int slot = a.batch.slot[t];
  const int64_t row =
      (int64_t{slot / a.kv.page_size} * a.kv.kv_heads * a.kv.page_size + slot % a.kv.page_size) * kDim + 2 * lane;
#pragma unroll
  for (int i = 0; i < kHeadsPerWarp; ++i) {
    const int h = first + i;
    if (h >= per_token) break;
    if (h < a.q_heads) {
      factors.apply(v[i], a.norms.q != nullptr, a.norms.eps, half_split, lane);
      Q* to = static_cast<Q*>(a.q_out) + (t * a.q_heads + h) * kDim + 2 * lane;
#pragma unroll
      for (int w = 0; w < kWords; ++w) store_pair(to + w * 64, v[i][w]);
      continue;
    }
    if (for_query) factors.load(a.norms.k, cos_sin, half_split, lane);
    for_query = false;
    const bool key = h < first_value;
    if (key) factors.apply(v[i], a.norms.k != nullptr, a.norms.eps, half_split, lane);
    if (slot < 0) continue;
    const int64_t kv_head = key ? h - a.q_heads : h - first_value;
    T* to = static_cast<T*>(key ? a.kv.k : a.kv.v) + row + kv_head * a.kv.page_size * kDim;
#pragma unroll
    for (int w = 0; w < kWords; ++w) store_pair(to + w * 64, v[i][w]);
  }
}

template <typename Raw, typename T>
void launch_rope_store_fast(const LaunchContext& c, const RopeStore& a) {
  const int parts = divide_up(a.q_heads + 2 * a.kv.kv_heads, kHeadsPerWarp);
  const int64_t items = int64_t{a.batch.tokens} * parts;
  const LaunchShape shape{dim3(static_cast<unsigned>(divide_up<int64_t>(items, kStoreWarps))),
                          dim3(kStoreWarps * kWarp), 0};
  if (a.q_type == DType::f32) {
    a.kv.head_dim == 64 ? launch(c, shape, rope_store_fast_kernel<Raw, T, float, 64>, a)
                        : launch(c, shape, rope_store_fast_kernel<Raw, T, float, 128>, a);
  } else {
    a.kv.head_dim == 64 ? launch(c, shape, rope_store_fast_kernel<Raw, T, T, 64>, a)
                        : launch(c, shape, rope_store_fast_kernel<Raw, T, T, 128>, a);
  }
}

template <typename Raw>
void launch_rope_store_typed(const LaunchContext& c, const RopeStore& a) {
  if (!narrow_q_supports(a.kv, a.rope)) {
    const int64_t items = int64_t{a.batch.tokens} * (a.q_heads + 2 * a.kv.kv_heads);
    launch(c, {dim3(static_cast<unsigned>(divide_up<int64_t>(items, kStoreWarps))), dim3(kStoreWarps * kWarp), 0},
           rope_store_kernel<Raw>, a);
  } else if (a.kv.dtype == DType::bf16) {
    launch_rope_store_fast<Raw, __nv_bfloat16>(c, a);
  } else {
    launch_rope_store_fast<Raw, __half>(c, a);
  }
}

// ---- attention with everything that models have: one block per (token, query head), its warps share the positions

constexpr int kWarps = 8;
constexpr int kMaxPerLane = kMaxAnyHeadDim / kWarp;

template <typename T>
__device__ __forceinline__ float cache_value(const void* base, int64_t row, int d, int i) {
  return widen(static_cast<const T*>(base)[row * d + i]);
}
struct Q8Row {};
template <>
__device__ __forceinline__ float cache_value<Q8Row>(const void* base, int64_t row, int d, int i) {
  const auto* block = static_cast<const uint8_t*>(base) + (row * (d / 32) + i / 32) * 34;
  const float scale = __half2float(*reinterpret_cast<const __half*>(block));
  return scale * static_cast<float>(static_cast<int8_t>(block[2 + i % 32]));
}
// With a bf16 cache the query and the weights are rounded to bf16 too (the numerics contract).
template <typename T>
__device__ __forceinline__ float like_cache(float x) {
  return x;
}
template <>
__device__ __forceinline__ float like_cache<__nv_bfloat16>(float x) {
  return round_bf16(x);
}

// The cached positions that a query sees.
struct Span {
  int begin = 0;
  int end = 0;
};
__device__ __forceinline__ Span span_of(const AttentionTask& a, int64_t t, int sequence) {
  const int position = a.batch.pos[t];
  if (a.causal) return {a.window != 0 ? max(position - a.window + 1, 0) : 0, position + 1};
  const int length = a.batch.kv_len[sequence];
  if (a.window == 0) return {0, length};
  return {max(position - a.window / 2, 0), min(position + a.window / 2 + 1, length)};
}

// kPerLane: elements of a head, of keys and of values, that a lane has at most.
template <typename T, int kPerLane>
__global__ void attention_any_kernel(const __grid_constant__ AttentionTask a) {
  __shared__ float merged[kWarps][kPerLane * kWarp + 2];
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int d = a.kv.head_dim;
  const int value_dim = a.kv.v_head_dim == 0 ? d : a.kv.v_head_dim;
  const int value_stride = a.kv.v_in_k ? d : value_dim;
  const int64_t t = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (a.q_heads / a.kv.kv_heads);
  const int sequence = a.batch.seq_of_token[t];
  const Span span = span_of(a, t, sequence);
  const int32_t* table = a.batch.block_table + int64_t{sequence} * a.batch.max_pages;
  const float* q = a.q + (t * a.q_heads + head) * d;
  float query[kPerLane];
  float o[kPerLane] = {};
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int i = j * kWarp + lane;
    query[j] = i < d ? like_cache<T>(load_fresh(q + i)) : 0.0F;
  }
  float m = -INFINITY;
  float l = 0;
  for (int p = span.begin + warp; p < span.end; p += kWarps) {
    const int64_t page = table[p / a.kv.page_size];
    const int64_t row = (page * a.kv.kv_heads + kv_head) * a.kv.page_size + p % a.kv.page_size;
    float score = 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int i = j * kWarp + lane;
      if (i < d) score = fmaf(query[j], cache_value<T>(a.kv.k, row, d, i), score);
    }
    score = warp_sum(score) * a.scale;
    if (a.softcap != 0.0F) score = a.softcap * tanhf(score / a.softcap);
    const float top = fmaxf(m, score);
    const float rescale = __expf(m - top);
    const float weight = __expf(score - top);
    m = top;
    l = l * rescale + weight;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int i = j * kWarp + lane;
      if (i < value_dim) {
        o[j] = fmaf(like_cache<T>(weight), cache_value<T>(a.kv.v, row, value_stride, i), o[j] * rescale);
      }
    }
  }
  if (lane == 0) merged[warp][0] = m, merged[warp][1] = l;
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const int i = j * kWarp + lane;
    if (i < value_dim) merged[warp][2 + i] = o[j];
  }
  __syncthreads();
  // A sink has a weight and no value.
  float top = a.sinks != nullptr ? a.sinks[head] : -INFINITY;
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, merged[w][0]);
  float sum = a.sinks != nullptr ? __expf(a.sinks[head] - top) : 0.0F;
  for (int w = 0; w < kWarps; ++w) sum += merged[w][1] * __expf(merged[w][0] - top);
  const int64_t to = (t * a.q_heads + head) * value_dim;
  for (int i = static_cast<int>(threadIdx.x); i < value_dim; i += kWarps * kWarp) {
    float value = 0;
    for (int w = 0; w < kWarps; ++w) value += merged[w][2 + i] * __expf(merged[w][0] - top);
    value /= sum;
    if (a.gate != nullptr) {
      value *= activate(a.gate_activation, load_fresh(a.gate + (a.gate_per_head ? t * a.q_heads + head : to + i)));
    }
    a.out[to + i] = value;
  }
}

template <typename T>
void launch_any(const LaunchContext& c, const AttentionTask& a) {
  const LaunchShape shape{dim3(static_cast<unsigned>(a.batch.tokens), static_cast<unsigned>(a.q_heads)),
                          dim3(kWarps * kWarp), 0};
  const int most = a.kv.head_dim > a.kv.v_head_dim ? a.kv.head_dim : a.kv.v_head_dim;
  if (most <= 64) return launch(c, shape, attention_any_kernel<T, 2>, a);
  if (most <= 128) return launch(c, shape, attention_any_kernel<T, 4>, a);
  if (most <= 256) return launch(c, shape, attention_any_kernel<T, 8>, a);
  launch(c, shape, attention_any_kernel<T, kMaxPerLane>, a);
}

__global__ void kv_store_kernel(const float* k, const float* v, KvLayerView kv, StepBatch batch) {
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t item = int64_t{blockIdx.x} * kStoreWarps + threadIdx.x / kWarp;
  if (item >= int64_t{batch.tokens} * kv.kv_heads) return;
  const int64_t t = item / kv.kv_heads;
  const int head = static_cast<int>(item % kv.kv_heads);
  const int64_t slot = batch.slot[t];
  if (slot < 0) return;
  store_cache_row(kv, kv.k, slot, head, k + item * kv.head_dim, lane);
  store_cache_row(kv, kv.v, slot, head, v + item * kv.head_dim, lane);
}

}  // namespace

bool narrow_q_supports(const KvLayerView& kv, const RopeParams& rope) {
  return (kv.dtype == DType::bf16 || kv.dtype == DType::f16) && (kv.head_dim == 64 || kv.head_dim == 128) &&
         rope.rotated_dims == kv.head_dim;
}

void launch_rope_store(const LaunchContext& c, const RopeStore& task) {
  task.raw.dtype == DType::f32 ? launch_rope_store_typed<float>(c, task)
                               : launch_rope_store_typed<__nv_bfloat16>(c, task);
}

void launch_kv_store(const LaunchContext& c, const float* k, const float* v, const KvLayerView& kv,
                     const StepBatch& batch) {
  const int64_t items = int64_t{batch.tokens} * kv.kv_heads;
  launch(c, {dim3(static_cast<unsigned>(divide_up<int64_t>(items, kStoreWarps))), dim3(kStoreWarps * kWarp), 0},
         kv_store_kernel, k, v, kv, batch);
}

void launch_attention_any(const LaunchContext& c, const AttentionTask& task) {
  switch (task.kv.dtype) {
    case DType::f32:
      return launch_any<float>(c, task);
    case DType::f16:
      return launch_any<__half>(c, task);
    case DType::bf16:
      return launch_any<__nv_bfloat16>(c, task);
    default:
      return launch_any<Q8Row>(c, task);
  }
}

}  // namespace inferno::cuda
