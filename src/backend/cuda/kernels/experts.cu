// Experts: which ones a token has, pairs of tokens and experts by expert, and the sum over a token's experts.
#include "backend/cuda/kernels/activation_functions.cuh"
#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/family_kernels.h"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {
namespace {

// ---- the choice, as backend/routing.cpp defines it: one warp per token

__device__ __forceinline__ double warp_sum(double v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kFullMask, v, step);
  return v;
}

// exp(x - max) / sum of n values in shared memory, in place.
__device__ __forceinline__ void softmax(float* x, int n, int lane) {
  float most = -INFINITY;
  for (int i = lane; i < n; i += kWarp) most = fmaxf(most, x[i]);
  most = warp_max(most);
  double sum = 0;
  for (int i = lane; i < n; i += kWarp) {
    x[i] = expf(x[i] - most);
    sum += x[i];
  }
  sum = warp_sum(sum);
  for (int i = lane; i < n; i += kWarp) x[i] = static_cast<float>(x[i] / sum);
  __syncwarp();
}

// The sum of the best two, or the best where there is only one.
__device__ __forceinline__ float best_two(const float* choice, int count) {
  float first = -INFINITY;
  float second = -INFINITY;
  for (int i = 0; i < count; ++i) {
    if (choice[i] > first) {
      second = first;
      first = choice[i];
    } else if (choice[i] > second) {
      second = choice[i];
    }
  }
  return count > 1 ? first + second : first;
}

// An expert that a token has already is NaN, so that none is chosen twice.
__device__ __forceinline__ void keep_best_groups(float* choice, float* worth, int experts, const Routing& routing,
                                                 int lane) {
  const int size = experts / routing.groups;
  for (int g = lane; g < routing.groups; g += kWarp) worth[g] = best_two(choice + g * size, size);
  __syncwarp();
  for (int g = lane; g < routing.groups; g += kWarp) {
    int better = 0;
    for (int other = 0; other < routing.groups; ++other) {
      if (worth[other] > worth[g] || (worth[other] == worth[g] && other < g)) ++better;
    }
    if (better < routing.groups_used) continue;
    for (int i = 0; i < size; ++i) choice[g * size + i] = NAN;
  }
  __syncwarp();
}

// The first of the best that are not taken.
__device__ __forceinline__ int best_left(const float* choice, int experts, int lane) {
  float value = -INFINITY;
  int best = experts;  // none
  for (int i = lane; i < experts; i += kWarp) {
    if (!isnan(choice[i]) && (best == experts || choice[i] > value)) {
      value = choice[i];
      best = i;
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float other_value = __shfl_xor_sync(kFullMask, value, step);
    const int other = __shfl_xor_sync(kFullMask, best, step);
    if (other != experts && (best == experts || other_value > value || (other_value == value && other < best))) {
      value = other_value;
      best = other;
    }
  }
  return best;
}

__global__ void route_kernel(const __grid_constant__ RouteTask a) {
  extern __shared__ float memory[];  // scores [experts], choice [experts], chosen weights [used]
  __shared__ float worth[kMaxExpertGroups];
  let_next_start();
  wait_for_previous();
  const auto lane = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.x;
  const Routing& routing = a.routing;
  const int experts = a.experts;
  float* scores = memory;
  float* choice = memory + experts;
  float* chosen = choice + experts;
  for (int i = lane; i < experts; i += kWarp) {
    const float logit = load_fresh(a.logits + t * experts + i) * routing.logit_scale;
    scores[i] = routing.score == RouterScore::sigmoid         ? sigmoid(logit)
                : routing.score == RouterScore::sqrt_softplus ? sqrtf(softplus(logit))
                                                              : logit;
  }
  __syncwarp();
  if (routing.score == RouterScore::softmax) softmax(scores, experts, lane);
  for (int i = lane; i < experts; i += kWarp) {
    const float c = scores[i] + (a.selection_bias != nullptr ? a.selection_bias[i] : 0.0F);
    choice[i] = isnan(c) ? -INFINITY : c;
  }
  __syncwarp();
  if (routing.groups > 1) keep_best_groups(choice, worth, experts, routing, lane);
  double sum = 0;
  for (int j = 0; j < routing.used; ++j) {
    // There is one; the bound only keeps a wrong routing from reading elsewhere.
    const int best = min(best_left(choice, experts, lane), experts - 1);
    sum += scores[best];
    __syncwarp();
    if (lane == 0) {
      choice[best] = NAN;
      chosen[j] = scores[best];
      a.ids[t * routing.used + j] = best;
    }
    __syncwarp();
  }
  if (routing.score == RouterScore::softmax_chosen) {
    softmax(chosen, routing.used, lane);
    sum = 1;
  }
  const double factor = routing.normalize ? static_cast<double>(routing.scale) / sum : routing.scale;
  for (int j = lane; j < routing.used; j += kWarp) {
    auto weight = static_cast<float>(chosen[j] * factor);
    // Written by another lane of this warp, before the barriers above.
    const int id = a.ids[t * routing.used + j];
    if (a.expert_scale != nullptr) weight *= a.expert_scale[id];
    a.weights[t * routing.used + j] = weight;
  }
}

// ---- pairs by expert: one block

constexpr int kSortThreads = 1024;
static_assert(kMaxExperts <= kSortThreads, "a thread per expert");

__global__ void __launch_bounds__(kSortThreads)
    sort_pairs_kernel(const int32_t* ids, int64_t pairs, int matrices, int columns, const PairLists lists) {
  __shared__ int counts[kMaxExperts];
  __shared__ int next[kMaxExperts];        // where the expert's next pair goes
  __shared__ int first_pair[kMaxExperts];  // and its first one
  __shared__ int first_tile[kMaxExperts];
  let_next_start();
  wait_for_previous();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < matrices) counts[thread] = 0;
  __syncthreads();
  for (int64_t p = thread; p < pairs; p += kSortThreads) atomicAdd(&counts[__ldcg(ids + p)], 1);
  __syncthreads();
  if (thread == 0) {
    int pair = 0;
    int tile = 0;
    for (int e = 0; e < matrices; ++e) {
      first_pair[e] = next[e] = pair;
      first_tile[e] = tile;
      pair += counts[e];
      tile += (counts[e] + columns - 1) / columns;
    }
    *lists.count = tile;
  }
  __syncthreads();
  for (int64_t p = thread; p < pairs; p += kSortThreads) {
    lists.pairs[atomicAdd(&next[__ldcg(ids + p)], 1)] = static_cast<int32_t>(p);
  }
  if (thread >= matrices) return;
  for (int done = 0; done < counts[thread]; done += columns) {
    lists.tiles[first_tile[thread] + done / columns] = {
        .matrix = thread, .first = first_pair[thread] + done, .count = min(columns, counts[thread] - done)};
  }
}

// ---- the sum: one block per token; its row is in shared memory

constexpr int kSumThreads = 256;

__global__ void __launch_bounds__(kSumThreads) expert_sum_kernel(const __grid_constant__ ExpertSum a) {
  extern __shared__ float y[];  // [cols]; a thread reads and writes its own elements alone
  __shared__ float partial[kSumThreads / kWarp];
  let_next_start();
  wait_for_previous();
  const int64_t t = blockIdx.x;
  const auto first = static_cast<int>(threadIdx.x);
  const auto cols = static_cast<int>(a.cols);
  const float* parts = a.parts + t * a.used * a.cols;
  const float* weights = a.weights + t * a.used;
  for (int i = first; i < cols; i += kSumThreads) {
    float sum = 0;
    for (int j = 0; j < a.used; ++j) sum = fmaf(load_fresh(weights + j), load_fresh(parts + j * a.cols + i), sum);
    y[i] = sum;
  }
  const auto normalize = [&](const float* norm) {
    float squares = 0;
    for (int i = first; i < cols; i += kSumThreads) squares = fmaf(y[i], y[i], squares);
    const float factor = 1.0F / sqrtf(block_sum(squares, partial) / static_cast<float>(cols) + a.eps);
    for (int i = first; i < cols; i += kSumThreads) y[i] = y[i] * factor * norm[i];
  };
  if (a.experts_norm != nullptr) normalize(a.experts_norm);
  if (a.shared != nullptr) {
    float share = 1;
    if (a.shared_gate != nullptr) {
      float dot = 0;
      for (int i = first; i < cols; i += kSumThreads) {
        dot = fmaf(load_fresh(a.h + t * a.cols + i), a.shared_gate[i], dot);
      }
      share = sigmoid(block_sum(dot, partial));
    }
    for (int i = first; i < cols; i += kSumThreads) y[i] = fmaf(share, load_fresh(a.shared + t * a.cols + i), y[i]);
  }
  if (a.post_norm != nullptr) normalize(a.post_norm);
  // h may be the residual and out: all threads have read it.
  __syncthreads();
  for (int i = first; i < cols; i += kSumThreads) {
    float v = y[i] * a.residual_scale;
    if (a.residual != nullptr) v += load_fresh(a.residual + t * a.cols + i);
    a.out[t * a.cols + i] = v * a.out_scale;
  }
}

}  // namespace

void launch_route(const LaunchContext& c, const RouteTask& task) {
  const int bytes = (2 * task.experts + task.routing.used) * static_cast<int>(sizeof(float));
  launch(c, {dim3(static_cast<unsigned>(task.tokens)), dim3(kWarp), bytes}, route_kernel, task);
}

void launch_sort_pairs(const LaunchContext& c, const int32_t* ids, int64_t pairs, int matrices, int columns,
                       const PairLists& lists) {
  launch(c, {dim3(1), dim3(kSortThreads), 0}, sort_pairs_kernel, ids, pairs, matrices, columns, lists);
}

void launch_expert_sum(const LaunchContext& c, const ExpertSum& task) {
  const auto bytes = static_cast<int>(task.cols * static_cast<int64_t>(sizeof(float)));
  launch(c, {dim3(static_cast<unsigned>(task.tokens)), dim3(kSumThreads), bytes}, expert_sum_kernel, task);
}

}  // namespace inferno::cuda
