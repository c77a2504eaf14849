// What happens to one head of q or k between its projection and its use: QK-norm and rotation.
#pragma once

#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

// Element i of a head rotated by (cos, sin) pairs; `head` are the values before.
__device__ __forceinline__ float rotated(const float* head, int i, const float* cos_sin, int rotated_dims,
                                         bool half_split) {
  if (i >= rotated_dims) return head[i];
  const int pairs = rotated_dims / 2;
  const int pair = half_split ? i % pairs : i / 2;
  const bool second = half_split ? i >= pairs : i % 2 == 1;
  const float x = half_split ? head[pair] : head[2 * pair];
  const float y = half_split ? head[pair + pairs] : head[2 * pair + 1];
  const float c = cos_sin[2 * pair];
  const float s = cos_sin[2 * pair + 1];
  return second ? x * s + y * c : x * c - y * s;
}

// What a lane needs of the constants of one head: norm weights and (cos, sin) of its elements lane, lane + 32, ...
// Whole heads rotate. They hang on no other kernel, so they can be read before the wait.
template <int kDim>
struct HeadConstants {
  static constexpr int kPerLane = kDim / kWarp;
  float2 turn[kPerLane];
  float norm[kPerLane];

  __device__ __forceinline__ void load(const float* norm_weights, const float* cos_sin, bool half_split, int lane) {
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int i = j * kWarp + lane;
      turn[j] = reinterpret_cast<const float2*>(cos_sin)[half_split ? i % (kDim / 2) : i / 2];
      norm[j] = norm_weights != nullptr ? norm_weights[i] : 1.0F;
    }
  }
  // QK-norm (if `normalizes`) and rotation of the lane's elements of a head, in place.
  __device__ __forceinline__ void apply(float* v, bool normalizes, float eps, bool half_split, int lane) const {
    if (normalizes) {
      float squares = 0;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) squares = fmaf(v[j], v[j], squares);
      const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(kDim) + eps);
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) v[j] = v[j] * factor * norm[j];
    }
    float turned[kPerLane];
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const float neighbour = __shfl_xor_sync(kFullMask, v[j], 1);
      const float other = half_split ? v[(j + kPerLane / 2) % kPerLane] : neighbour;
      const bool second = half_split ? j >= kPerLane / 2 : lane % 2 == 1;
      turned[j] = second ? other * turn[j].y + v[j] * turn[j].x : v[j] * turn[j].x - other * turn[j].y;
    }
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) v[j] = turned[j];
  }
};

// One warp normalizes a head in shared memory in place. norm null: nothing to do.
__device__ __forceinline__ void norm_head(float* head, const float* norm, float eps, int head_dim, int lane) {
  if (norm == nullptr) return;
  float squares = 0;
  for (int i = lane; i < head_dim; i += kWarp) squares = fmaf(head[i], head[i], squares);
  const float factor = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(head_dim) + eps);
  for (int i = lane; i < head_dim; i += kWarp) head[i] = head[i] * factor * norm[i];
  __syncwarp();
}

// One row of the cache from f32 values (in shared memory), by one warp.
__device__ __forceinline__ void store_cache_row(const KvLayerView& kv, void* base, int64_t slot, int head,
                                                const float* values, int lane) {
  const int64_t page = slot / kv.page_size;
  const int64_t index = (page * kv.kv_heads + head) * kv.page_size + slot % kv.page_size;
  const int d = kv.head_dim;
  if (kv.dtype == DType::f32) {
    for (int i = lane; i < d; i += kWarp) static_cast<float*>(base)[index * d + i] = values[i];
  } else if (kv.dtype == DType::bf16) {
    for (int i = lane; i < d; i += kWarp) {
      static_cast<__nv_bfloat16*>(base)[index * d + i] = __float2bfloat16_rn(values[i]);
    }
  } else if (kv.dtype == DType::f16) {
    for (int i = lane; i < d; i += kWarp) static_cast<__half*>(base)[index * d + i] = __float2half_rn(values[i]);
  } else {  // Q8_0: d = amax / 127 as f16, levels = nearest of x * (1 / d) (quant/q8_0.cpp)
    for (int block = 0; block < d / 32; ++block) {
      const float x = values[block * 32 + lane];
      const __half scale = __float2half_rn(warp_max(fabsf(x)) / 127.0F);
      const float wide = __half2float(scale);
      auto* bytes = static_cast<uint8_t*>(base) + (index * (d / 32) + block) * 34;
      if (lane == 0) *reinterpret_cast<__half*>(bytes) = scale;
      const float level = wide == 0.0F ? 0.0F : rintf(x * __fdiv_rn(1.0F, wide));
      bytes[2 + lane] = static_cast<uint8_t>(static_cast<int8_t>(fminf(fmaxf(level, -127.0F), 127.0F)));
    }
  }
}

}  // namespace inferno::cuda
