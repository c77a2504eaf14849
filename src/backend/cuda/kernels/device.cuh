// Small pieces of device code that the kernels share: loads, reductions, conversions, launch order.
//
// Data that an earlier kernel of the same step wrote is read through L2 (load_fresh): a kernel may start before the
// previous one has ended (programmatic dependent launch), and its L1 must not hold stale lines. Weights never change
// and bypass L1 (load_weight_*), also before the wait.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace inferno::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kFullMask = 0xffffffffU;

// Waits until everything before this kernel has finished and its writes can be seen. Every thread of every kernel calls
// it, so that the end of a kernel means the end of all before it.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel start as soon as its blocks fit, up to its own wait_for_previous().
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ uint4 load_weight_16(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 load_weight_8(const void* p) {
  uint2 v;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t load_weight_4(const void* p) {
  uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t load_weight_2(const void* p) {
  uint16_t v;
  asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}

// A barrier of the first kThreads threads of a block, whole warps.
template <int kThreads>
__device__ __forceinline__ void sync_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}
// The same; whether `value` holds for any of them.
template <int kThreads>
__device__ __forceinline__ bool sync_first_or(bool value) {
  uint32_t any = 0;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "bar.red.or.pred q, 1, %2, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<uint32_t>(value)), "n"(kThreads)
      : "memory");
  return any != 0;
}

// Shared memory by its 32-bit address.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ uint4 load_shared_16(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
  return v;
}
__device__ __forceinline__ uint2 load_shared_8(uint32_t at) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at));
  return v;
}
__device__ __forceinline__ uint32_t load_shared_4(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(at));
  return v;
}
__device__ __forceinline__ uint32_t load_shared_2(uint32_t at) {
  uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at));
  return v;
}

__device__ __forceinline__ uint4 load_fresh_16(const void* p) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ float load_fresh(const float* p) {
  return __ldcg(p);
}
__device__ __forceinline__ float4 load_fresh4(const float* p) {
  return __ldcg(reinterpret_cast<const float4*>(p));
}

// Eight values x[0..8) of which `count` exist; the rest are zero. `aligned`: x is a multiple of 16 bytes.
__device__ __forceinline__ void load_fresh8(const float* x, int count, bool aligned, float* v) {
  if (aligned && count >= 8) {
    const float4 a = load_fresh4(x);
    const float4 b = load_fresh4(x + 4);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = i < count ? load_fresh(x + i) : 0.0F;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(kFullMask, v, step);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(kFullMask, v, step));
  return v;
}
// Sum over a block of whole warps; `partial` is shared memory for one float per warp. All threads get the result.
__device__ __forceinline__ float block_sum(float v, float* partial) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = v;
  __syncthreads();
  float sum = 0;
  for (int w = 0; w < warps; ++w) sum += partial[w];
  return sum;
}

__device__ __forceinline__ float half_bits(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
__device__ __forceinline__ float bf16_low(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float bf16_high(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000U);
}
__device__ __forceinline__ float round_bf16(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}
__device__ __forceinline__ float round_f16(float x) {
  return __half2float(__float2half_rn(x));
}

// Types of the cache and of matrix products: conversions by name.
template <typename T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half narrow<__half>(float x) {
  // Values beyond f16's range saturate: an infinity would poison the whole row.
  return __float2half_rn(fminf(fmaxf(x, -65504.0F), 65504.0F));
}
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
__device__ __forceinline__ float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float widen(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float widen(float x) {
  return x;
}

// As a cache stores it: plain rounding.
template <typename T>
__device__ __forceinline__ T stored(float x) {
  return narrow<T>(x);
}
template <>
__device__ __forceinline__ __half stored<__half>(float x) {
  return __float2half_rn(x);
}

template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high);
template <>
__device__ __forceinline__ uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ uint32_t pack_pair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The same, saturating.
template <typename T>
__device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
  if constexpr (sizeof(T) == 2 && !std::is_same_v<T, __nv_bfloat16>) {
    return pack_pair<T>(widen(narrow<T>(low)), widen(narrow<T>(high)));
  } else {
    return pack_pair<T>(low, high);
  }
}
template <typename T>
__device__ __forceinline__ float2 widen_pair(uint32_t pair) {
  const auto* both = reinterpret_cast<const T*>(&pair);
  return make_float2(widen(both[0]), widen(both[1]));
}

// 2^x to about two units in the last place, subnormal results are flushed to zero.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// silu(gate) * up
__device__ __forceinline__ float swiglu(float gate, float up) {
  return __fdividef(gate, 1.0F + __expf(-gate)) * up;
}

}  // namespace inferno::cuda
