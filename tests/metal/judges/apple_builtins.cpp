// The functions that Apple's compiler leaves to the GPU's, on the emulator.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "simd.h"

extern "C" {

float simd_sum_f32(float value) asm("air.simd_sum.f32");
float simd_sum_f32(float value) {
  return metal::simd_sum(value);
}
float simd_max_f32(float value) asm("air.simd_max.f32");
float simd_max_f32(float value) {
  return metal::simd_max(value);
}
float simd_shuffle_xor_f32(float value, uint16_t mask) asm("air.simd_shuffle_xor.f32");
float simd_shuffle_xor_f32(float value, uint16_t mask) {
  return metal::simd_shuffle_xor(value, mask);
}
void workgroup_barrier(int32_t flags, int32_t scope) asm("air.wg.barrier");
void workgroup_barrier(int32_t /*flags*/, int32_t /*scope*/) {
  emulator::threadgroup_barrier();
}
void simdgroup_barrier(int32_t flags, int32_t scope) asm("air.simdgroup.barrier");
void simdgroup_barrier(int32_t /*flags*/, int32_t /*scope*/) {
  metal::simdgroup_barrier(metal::mem_flags::mem_none);
}

float rsqrt_f32(float x) asm("air.rsqrt.f32");
float rsqrt_f32(float x) {
  return 1.0F / std::sqrt(x);
}
float fast_exp_f32(float x) asm("air.fast_exp.f32");
float fast_exp_f32(float x) {
  return std::exp(x);
}
float fast_exp2_f32(float x) asm("air.fast_exp2.f32");
float fast_exp2_f32(float x) {
  return std::exp2(x);
}
float fmax_f32(float a, float b) asm("air.fmax.f32");
float fmax_f32(float a, float b) {
  return std::fmax(a, b);
}
int32_t min_i32(int32_t a, int32_t b) asm("air.min.s.i32");
int32_t min_i32(int32_t a, int32_t b) {
  return std::min(a, b);
}
float convert_u32(uint32_t value) asm("air.convert.f.f32.u.i32");
float convert_u32(uint32_t value) {
  return static_cast<float>(value);
}
float convert_s32(int32_t value) asm("air.convert.f.f32.s.i32");
float convert_s32(int32_t value) {
  return static_cast<float>(value);
}
// Whether a parameter that depends on a function constant is there.
uint8_t normalize_predicate(uint8_t value) asm("air.normalize_function_constant_predicate.i8");
uint8_t normalize_predicate(uint8_t value) {
  return value != 0 ? 1 : 0;
}

// A lane's two elements of a matrix; apple_kernel.py writes the builtins on 64 elements in terms of this.
void inferno_matrix_multiply(const float* a, const float* b, const float* c, float* to) {
  metal::simdgroup_matrix<float> result;
  metal::simdgroup_multiply_accumulate(result, metal::simdgroup_matrix<float>{{a[0], a[1]}},
                                       metal::simdgroup_matrix<float>{{b[0], b[1]}},
                                       metal::simdgroup_matrix<float>{{c[0], c[1]}});
  to[0] = result.elements[0];
  to[1] = result.elements[1];
}

// A kernel's variables in threadgroup memory are variables of its module, one group runs at a time: the first thread of
// each group fills them with NaN. A block of the emulator's stands for them in the count of 32 KiB.
void inferno_threadgroup_variable(char* variable, uint64_t bytes, int32_t id) {
  auto* mark = static_cast<unsigned char*>(emulator::threadgroup_memory(id, bytes));
  if (mark[0] == 0) return;
  mark[0] = 0;
  std::fill(variable, variable + bytes, static_cast<char>(0xff));
}
}
