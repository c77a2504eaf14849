// Kernels with one fault each: what the emulator must notice.
#include "common.h"

kernel void fault_divergence(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  out[lane] = lane < 16 ? simd_sum(1.0f) : simd_max(1.0f);
}

kernel void fault_return_before_barrier(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i == 3) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = 1.0f;
}

kernel void fault_too_much_memory(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[9000];
  shared[i] = 1.0f;
  out[i] = shared[i];
}

// Thread i reads what thread n - 1 - i wrote.
kernel void fault_missing_barrier(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                                  uint3 threads [[threads_per_threadgroup]]) {
  threadgroup float shared[64];
  shared[i] = float(i);
  out[i] = shared[threads.x - 1 - i];
}

kernel void mirror(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                   uint3 threads [[threads_per_threadgroup]]) {
  threadgroup float shared[64];
  shared[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[threads.x - 1 - i];
}

kernel void fault_beyond_edge(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  out[i + 1] = 1.0f;
}

kernel void sum_of_lanes(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  out[i] = simd_sum(float(i));
}
