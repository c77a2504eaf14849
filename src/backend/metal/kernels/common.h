// What all kernels share. The rules our Metal sources keep to are in docs/decisions/metal.md.
#ifndef INFERNO_METAL_COMMON_H
#define INFERNO_METAL_COMMON_H
#include <metal_stdlib>
#include "args.h"

using namespace metal;

// bf16 by hand: Metal has the type from macOS 14 on.
inline float bf16_to_float(ushort bits) {
  return as_type<float>(uint(bits) << 16);
}
inline ushort float_to_bf16(float value) {
  uint bits = as_type<uint>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return ushort((bits >> 16) | 0x40u);  // NaN stays NaN
  return ushort((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float f16_to_float(ushort bits) {
  return float(as_type<half>(bits));
}
inline ushort float_to_f16(float value) {
  return as_type<ushort>(half(value));
}

// The sum over all threads of a threadgroup, in every thread. shared[simdgroups]; free again after the next barrier.
inline float threadgroup_sum(float value, threadgroup float* shared, uint lane, uint simdgroup, uint simdgroups) {
  float sum = simd_sum(value);
  if (lane == 0) shared[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint i = 0; i < simdgroups; ++i) total += shared[i];
  return total;
}
#endif
