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

// out [8, 8] = a matrix of thread numbers, transposed, times 2; threads write it and matrices read it.
kernel void twice_transposed(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[64];
  threadgroup float diagonal[64];
  for (uint e = i; e < 64; e += 32) {
    shared[e] = float(e);
    diagonal[e] = e % 9 == 0 ? 2.0f : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 a;
  simdgroup_float8x8 b;
  simdgroup_load(a, diagonal, 8);
  simdgroup_load(b, shared, 8, 0, true);
  simdgroup_multiply(a, a, b);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_store(a, shared, 8);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = i; e < 64; e += 32) out[e] = shared[e];
}

// Some lanes are at a product of matrices, the others at a sum.
kernel void fault_matrix_divergence(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8>(1.0f);
  if (lane < 16) simdgroup_multiply(a, a, a);
  out[lane] = simd_sum(1.0f);
}

// The matrix is read before other threads have written it.
kernel void fault_matrix_without_barrier(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[64];
  simdgroup_float8x8 a;
  for (uint e = i; e < 64; e += 32) shared[63 - e] = 1.0f;
  simdgroup_load(a, shared, 8);
  simdgroup_multiply(a, a, a);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_store(a, shared, 8);
  out[i] = shared[i];
}

kernel void fault_beyond_edge(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  out[i + 1] = 1.0f;
}

kernel void sum_of_lanes(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  out[i] = simd_sum(float(i));
}
