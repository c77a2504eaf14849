// QK-norm and rotation of one head, and the cache row it is stored in.
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

// The factors of a head in a warp's registers: norm weights, and (cos, sin) of a rotation of the whole head. A lane has
// words of two elements, 64 w + 2 lane and the next. They depend on no other kernel, so they can be loaded before the
// wait.
template <int kDim>
struct HeadFactors {
  static constexpr int kWords = kDim / 64;
  float2 norm[kWords];
  float2 rotation[kWords][2];  // of both elements

  __device__ __forceinline__ void load(const float* norm_weights, const float* cos_sin, bool half_split, int lane) {
    const auto* pairs = reinterpret_cast<const float2*>(cos_sin);
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const int i = w * 64 + 2 * lane;
      rotation[w][0] = pairs[half_split ? i % (kDim / 2) : i / 2];
      rotation[w][1] = pairs[half_split ? i % (kDim / 2) + 1 : i / 2];
      norm[w] = norm_weights != nullptr ? *reinterpret_cast<const float2*>(norm_weights + i) : make_float2(1, 1);
    }
  }

  // QK-norm (if `normalizes`) and rotation of a head, in place.
  __device__ __forceinline__ void apply(float2* v, bool normalizes, float eps, bool half_split, int lane) const {
    if (normalizes) {
      float squares = 0;
#pragma unroll
      for (int w = 0; w < kWords; ++w) squares = fmaf(v[w].x, v[w].x, fmaf(v[w].y, v[w].y, squares));
      const float factor = rsqrtf(warp_sum(squares) / static_cast<float>(kDim) + eps);
#pragma unroll
      for (int w = 0; w < kWords; ++w) v[w] = make_float2(v[w].x * factor * norm[w].x, v[w].y * factor * norm[w].y);
    }
    if (!half_split) {  // both elements of a pair are in one word
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const float2 t = rotation[w][0];
        v[w] = make_float2(v[w].x * t.x - v[w].y * t.y, v[w].x * t.y + v[w].y * t.x);
      }
    } else if constexpr (kWords == 2) {
      const float2 low = make_float2(v[0].x * rotation[0][0].x - v[1].x * rotation[0][0].y,
                                     v[0].y * rotation[0][1].x - v[1].y * rotation[0][1].y);
      v[1] = make_float2(v[0].x * rotation[1][0].y + v[1].x * rotation[1][0].x,
                         v[0].y * rotation[1][1].y + v[1].y * rotation[1][1].x);
      v[0] = low;
    } else {  // the other half of the head is in the other half of the warp
      const float x = __shfl_xor_sync(kFullMask, v[0].x, kWarp / 2);
      const float y = __shfl_xor_sync(kFullMask, v[0].y, kWarp / 2);
      const float sign = lane < kWarp / 2 ? -1.0F : 1.0F;
      v[0] = make_float2(v[0].x * rotation[0][0].x + sign * x * rotation[0][0].y,
                         v[0].y * rotation[0][1].x + sign * y * rotation[0][1].y);
    }
  }
};

// Two adjacent elements of a row that an earlier kernel wrote, and of a row to be written.
__device__ __forceinline__ float2 load_pair(const float* from) {
  return __ldcg(reinterpret_cast<const float2*>(from));
}
__device__ __forceinline__ float2 load_pair(const __nv_bfloat16* from) {
  const uint32_t pair = __ldcg(reinterpret_cast<const unsigned int*>(from));
  return make_float2(bf16_low(pair), bf16_high(pair));
}
__device__ __forceinline__ void store_pair(float* to, float2 v) {
  *reinterpret_cast<float2*>(to) = v;
}
template <typename T>
__device__ __forceinline__ void store_pair(T* to, float2 v) {
  *reinterpret_cast<uint32_t*>(to) = pack_pair<T>(v.x, v.y);
}

// One warp normalizes a head in shared memory in place. Without `norm` it does nothing.
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
