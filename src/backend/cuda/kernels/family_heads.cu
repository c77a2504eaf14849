// Heads of every size on their way into the cache: rotation of queries and keys by tables of their own, values unlike
// keys, rows of latent attention.
#include "backend/cuda/kernels/family_kernels.h"
#include "backend/cuda/kernels/heads.cuh"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {
namespace {

constexpr int kStoreWarps = 4;

struct HeadStoreParams {
  HeadStore a;
  KvLayerView values;  // the rows of values in place of keys
};

// One warp per (token, head): heads are q, then k, then v. A head passes through shared memory, so q_out may be q.
__global__ void head_store_kernel(const __grid_constant__ HeadStoreParams p) {
  extern __shared__ float heads[];  // [kStoreWarps][the wider of keys and values]
  let_next_start();
  wait_for_previous();
  const HeadStore& a = p.a;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int d = a.kv.head_dim;
  const int value_dim = p.values.head_dim;
  const int kv_heads = a.k == nullptr ? 0 : a.kv.kv_heads;
  const int per_token = a.q_heads + 2 * kv_heads;
  const int64_t item = int64_t{blockIdx.x} * kStoreWarps + warp;
  if (item >= int64_t{a.batch.tokens} * per_token) return;
  const int64_t t = item / per_token;
  const int h = static_cast<int>(item % per_token);
  const bool query = h < a.q_heads;
  const bool key = !query && h < a.q_heads + kv_heads;
  float* head = heads + warp * max(d, value_dim);
  if (!query && !key) {
    const int kv_head = h - a.q_heads - kv_heads;
    const float* from = a.v + (t * kv_heads + kv_head) * value_dim;
    for (int i = lane; i < value_dim; i += kWarp) head[i] = load_fresh(from + i);
    __syncwarp();
    const int64_t slot = a.batch.slot[t];
    if (slot >= 0) store_cache_row(p.values, p.values.k, slot, kv_head, head, lane);
    return;
  }
  const int kv_head = h - a.q_heads;
  const float* from = query ? a.q + (t * a.q_heads + h) * d : a.k + (t * kv_heads + kv_head) * d;
  for (int i = lane; i < d; i += kWarp) head[i] = load_fresh(from + i);
  __syncwarp();
  const float* table = query ? a.q_table : a.k_table;
  const int rotated_dims = table == nullptr ? 0 : a.rotated_dims;
  const float* cos_sin = rotated_dims == 0 ? nullptr : table + int64_t{a.batch.pos[t]} * rotated_dims;
  float values[kMaxAnyHeadDim / kWarp];
#pragma unroll
  for (int j = 0; j < kMaxAnyHeadDim / kWarp; ++j) {
    const int i = j * kWarp + lane;
    if (i < d) values[j] = rotated(head, i, cos_sin, rotated_dims, a.half_split);
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kMaxAnyHeadDim / kWarp; ++j) {
    const int i = j * kWarp + lane;
    if (i >= d) continue;
    if (query) {
      a.q_out[(t * a.q_heads + h) * d + i] = values[j];
    } else {
      head[i] = values[j];
    }
  }
  __syncwarp();
  const int64_t slot = a.batch.slot[t];
  if (key && slot >= 0) store_cache_row(a.kv, a.kv.k, slot, kv_head, head, lane);
}

__global__ void cache_rows_kernel(const float* rows, const __grid_constant__ KvLayerView view,
                                  const __grid_constant__ StepBatch batch) {
  extern __shared__ float heads[];  // [kStoreWarps][head_dim]
  let_next_start();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t item = int64_t{blockIdx.x} * kStoreWarps + warp;
  if (item >= int64_t{batch.tokens} * view.kv_heads) return;
  const int64_t slot = batch.slot[item / view.kv_heads];
  if (slot < 0) return;
  float* head = heads + warp * view.head_dim;
  for (int i = lane; i < view.head_dim; i += kWarp) head[i] = load_fresh(rows + item * view.head_dim + i);
  __syncwarp();
  store_cache_row(view, view.k, slot, static_cast<int>(item % view.kv_heads), head, lane);
}

__global__ void rotate_ends_kernel(const __grid_constant__ RotateEnds a) {
  let_next_start();
  wait_for_previous();
  const int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (item >= a.tokens * a.heads * a.rotated) return;
  const int i = static_cast<int>(item % a.rotated);
  const int64_t h = item / a.rotated % a.heads;
  const int64_t t = item / a.rotated / a.heads;
  const float* from = a.from + t * a.from_token + h * a.from_head + a.from_kept;
  const int pairs = a.rotated / 2;
  const int pair = a.half_split ? i % pairs : i / 2;
  const float both[2] = {load_fresh(from + (a.half_split ? pair : 2 * pair)),
                         load_fresh(from + (a.half_split ? pair + pairs : 2 * pair + 1))};
  const int which = a.half_split ? i / pairs : i % 2;
  const float* cos_sin = a.table + int64_t{a.positions[t]} * a.rotated + 2 * pair;
  a.out[(t * a.heads + h) * (a.kept + a.rotated) + a.kept + i] = rotated(both, which, cos_sin, 2, false);
}

}  // namespace

void launch_head_store(const LaunchContext& c, const HeadStore& task) {
  const HeadStoreParams params{.a = task, .values = task.kv.values()};
  const int widest = task.kv.head_dim > params.values.head_dim ? task.kv.head_dim : params.values.head_dim;
  const int heads = task.q_heads + (task.k == nullptr ? 0 : 2 * task.kv.kv_heads);
  const int64_t items = int64_t{task.batch.tokens} * heads;
  launch(c,
         {dim3(static_cast<unsigned>(divide_up<int64_t>(items, kStoreWarps))), dim3(kStoreWarps * kWarp),
          kStoreWarps * widest * static_cast<int>(sizeof(float))},
         head_store_kernel, params);
}

void launch_cache_rows(const LaunchContext& c, const float* rows, const KvLayerView& view, const StepBatch& batch) {
  const int64_t items = int64_t{batch.tokens} * view.kv_heads;
  launch(c,
         {dim3(static_cast<unsigned>(divide_up<int64_t>(items, kStoreWarps))), dim3(kStoreWarps * kWarp),
          kStoreWarps * view.head_dim * static_cast<int>(sizeof(float))},
         cache_rows_kernel, rows, view, batch);
}

void launch_rotate_ends(const LaunchContext& c, const RotateEnds& task) {
  constexpr int kThreads = 256;
  const int64_t items = task.tokens * task.heads * task.rotated;
  if (items == 0) return;
  launch(c, {dim3(static_cast<unsigned>(divide_up<int64_t>(items, kThreads))), dim3(kThreads), 0}, rotate_ends_kernel,
         task);
}

}  // namespace inferno::cuda
