// Kernels of rows that some families have: sums, activations, norms with and without weights, what follows a product.
#include <algorithm>

#include "backend/cuda/kernels/activation_functions.cuh"
#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/family_kernels.h"
#include "backend/cuda/kernels/launch.cuh"

namespace inferno::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ int64_t thread_index() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__global__ void add_kernel(const float* a, const float* b, int64_t count, int64_t b_count, float* out) {
  let_next_start();
  wait_for_previous();
  const int64_t i = thread_index();
  if (i < count) out[i] = load_fresh(a + i) + load_fresh(b + i % b_count);
}

__global__ void activate_kernel(const __grid_constant__ ActivateRows a) {
  let_next_start();
  wait_for_previous();
  const int64_t i = thread_index();
  if (i >= a.rows * a.cols) return;
  const int64_t r = i / a.cols;
  const int64_t col = i % a.cols;
  const float x = load_fresh(a.x + r * a.x_stride + col);
  a.out[i] = a.factor == nullptr ? activate(a.activation, x)
                                 : gated(a.activation, x, load_fresh(a.factor + r * a.factor_stride + col));
}

__global__ void scale_and_cap_kernel(float* x, int64_t count, float scale, float cap) {
  let_next_start();
  wait_for_previous();
  const int64_t i = thread_index();
  if (i >= count) return;
  const float v = load_fresh(x + i) * scale;
  x[i] = cap == 0.0F ? v : cap * tanhf(v / cap);
}

// ---- norms: one block per row. A thread reads and writes the same elements in all passes, so out may be x.

__global__ void norm_rows_kernel(const __grid_constant__ NormRows a) {
  __shared__ float partial[kThreads / kWarp];
  let_next_start();
  wait_for_previous();
  const auto cols = static_cast<int>(a.cols);
  const auto first = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const float* x = a.x + int64_t{blockIdx.x} * (a.x_stride != 0 ? a.x_stride : a.cols);
  float* out = a.out + int64_t{blockIdx.x} * (a.out_stride != 0 ? a.out_stride : a.cols);
  float mean = 0;
  if (a.centers) {
    float sum = 0;
    for (int i = first; i < cols; i += threads) sum += load_fresh(x + i);
    mean = block_sum(sum, partial) / static_cast<float>(cols);
  }
  float squares = 0;
  for (int i = first; i < cols; i += threads) {
    const float v = load_fresh(x + i) - mean;
    squares = fmaf(v, v, squares);
  }
  const float factor = 1.0F / sqrtf(block_sum(squares, partial) / static_cast<float>(cols) + a.eps);
  for (int i = first; i < cols; i += threads) {
    float v = (load_fresh(x + i) - mean) * factor;
    if (a.weight != nullptr) v *= a.weight[i];
    if (a.bias != nullptr) v += a.bias[i];
    out[i] = v;
  }
}

// One block per row and part of it that is normalized.
__global__ void finish_rows_kernel(const __grid_constant__ FinishRows a) {
  __shared__ float partial[kThreads / kWarp];
  let_next_start();
  wait_for_previous();
  const auto cols = static_cast<int>(a.norm_cols);
  const auto first = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const int64_t begin = int64_t{blockIdx.x} * a.norm_cols;
  const float* y = a.y + begin;
  float factor = 1;
  if (a.norm != nullptr) {
    float squares = 0;
    for (int i = first; i < cols; i += threads) {
      const float v = load_fresh(y + i);
      squares = fmaf(v, v, squares);
    }
    factor = 1.0F / sqrtf(block_sum(squares, partial) / static_cast<float>(cols) + a.eps);
  }
  for (int i = first; i < cols; i += threads) {
    float v = load_fresh(y + i);
    if (a.norm != nullptr) v = v * factor * a.norm[i];
    v *= a.residual_scale;
    if (a.residual != nullptr) v += load_fresh(a.residual + begin + i);
    a.out[begin + i] = v * a.out_scale;
  }
}

__global__ void gated_norm_kernel(const __grid_constant__ GatedNorm a) {
  __shared__ float partial[kThreads / kWarp];
  let_next_start();
  wait_for_previous();
  const auto cols = static_cast<int>(a.norm_cols);
  const auto first = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const int64_t begin = int64_t{blockIdx.x} * a.norm_cols;
  float* x = a.x + begin;
  const float* z = a.z + begin;
  const float* weight = a.weight + begin % a.weight_cols;
  const auto value = [&](int i) {
    const float v = load_fresh(x + i);
    return a.gates_first ? v * activate(inferno::Activation::silu, load_fresh(z + i)) : v;
  };
  float squares = 0;
  for (int i = first; i < cols; i += threads) {
    const float v = value(i);
    squares = fmaf(v, v, squares);
  }
  const float factor = 1.0F / sqrtf(block_sum(squares, partial) / static_cast<float>(cols) + a.eps);
  for (int i = first; i < cols; i += threads) {
    float v = value(i) * factor * weight[i];
    if (!a.gates_first) v *= activate(inferno::Activation::silu, load_fresh(z + i));
    x[i] = v;
  }
}

LaunchShape shape_of(int64_t items) {
  return {dim3(static_cast<unsigned>(divide_up<int64_t>(items, kThreads))), dim3(kThreads), 0};
}
// A block per row, of whole warps.
LaunchShape row_shape(int64_t rows, int64_t cols) {
  const int64_t threads = std::min<int64_t>(kThreads, divide_up<int64_t>(cols, kWarp) * kWarp);
  return {dim3(static_cast<unsigned>(rows)), dim3(static_cast<unsigned>(threads)), 0};
}

}  // namespace

void launch_add(const LaunchContext& c, const float* a, const float* b, int64_t count, int64_t b_count, float* out) {
  launch(c, shape_of(count), add_kernel, a, b, count, b_count, out);
}

void launch_activate(const LaunchContext& c, const ActivateRows& task) {
  launch(c, shape_of(task.rows * task.cols), activate_kernel, task);
}

void launch_scale_and_cap(const LaunchContext& c, float* x, int64_t count, float scale, float cap) {
  launch(c, shape_of(count), scale_and_cap_kernel, x, count, scale, cap);
}

void launch_norm_rows(const LaunchContext& c, const NormRows& task) {
  launch(c, row_shape(task.rows, task.cols), norm_rows_kernel, task);
}

void launch_finish_rows(const LaunchContext& c, const FinishRows& task) {
  launch(c, row_shape(task.rows * task.cols / task.norm_cols, task.norm_cols), finish_rows_kernel, task);
}

void launch_gated_norm(const LaunchContext& c, const GatedNorm& task) {
  launch(c, row_shape(task.rows * task.cols / task.norm_cols, task.norm_cols), gated_norm_kernel, task);
}

}  // namespace inferno::cuda
