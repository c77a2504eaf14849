// A fault that only address spaces show: tools/check_metal expects that this does not compile.
#include "common.h"

inline float first_of(device const float* values) {
  return values[0];
}

kernel void wrong_address_space(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[32];
  shared[i] = 1.0f;
  out[i] = first_of(shared);
}
