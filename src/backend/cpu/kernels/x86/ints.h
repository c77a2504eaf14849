// Integers in the widest vectors the file is compiled for, as floats.h has floats: multiplied in pairs and added.
#pragma once

#include "backend/cpu/kernels/x86/floats.h"

namespace inferno {
namespace {

#if defined(__AVX512F__)
using Ints = __m512i;
inline Ints ints_load(const void* p) {
  return _mm512_loadu_si512(p);
}
inline Ints ints_set(int32_t x) {
  return _mm512_set1_epi32(x);
}
inline Ints ints_add(Ints a, Ints b) {
  return _mm512_add_epi32(a, b);
}
inline Ints ints_mul(Ints a, Ints b) {
  return _mm512_mullo_epi32(a, b);
}
inline Wide ints_to_floats(Ints v) {
  return _mm512_cvtepi32_ps(v);
}
inline Ints words_add(Ints a, Ints b) {
  return _mm512_add_epi16(a, b);
}
// Pairs of 8 bits, the left ones unsigned, to 16 bits; of 16 bits to 32.
inline Ints byte_pairs(Ints a, Ints b) {
  return _mm512_maddubs_epi16(a, b);
}
inline Ints word_pairs(Ints a, Ints b) {
  return _mm512_madd_epi16(a, b);
}
#else
using Ints = __m256i;
inline Ints ints_load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline Ints ints_set(int32_t x) {
  return _mm256_set1_epi32(x);
}
inline Ints ints_add(Ints a, Ints b) {
  return _mm256_add_epi32(a, b);
}
inline Ints ints_mul(Ints a, Ints b) {
  return _mm256_mullo_epi32(a, b);
}
inline Wide ints_to_floats(Ints v) {
  return _mm256_cvtepi32_ps(v);
}
inline Ints words_add(Ints a, Ints b) {
  return _mm256_add_epi16(a, b);
}
inline Ints byte_pairs(Ints a, Ints b) {
  return _mm256_maddubs_epi16(a, b);
}
inline Ints word_pairs(Ints a, Ints b) {
  return _mm256_madd_epi16(a, b);
}
#endif
// Additions up to here are done in the order they are written: gcc would first compute all that is to be added, and
// spill it.
inline void in_order([[maybe_unused]] Ints& sum) {
#if !defined(INFERNO_EMULATED)
  __asm__("" : "+v"(sum));
#endif
}
// Four bytes, or two words, for all lanes.
inline Ints ints_spread(const void* four_bytes) {
  int32_t four;
  __builtin_memcpy(&four, four_bytes, 4);
  return ints_set(four);
}

}  // namespace
}  // namespace inferno
