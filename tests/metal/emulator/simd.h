// What the threads of Metal's groups do together, as C++ on the emulator: for our kernels (metal_stdlib) and for the
// foreign ones that judge the emulator (tests/metal/judges).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulator.h"

namespace metal {

typedef uint64_t ulong;

enum class mem_flags { mem_none, mem_device, mem_threadgroup };
inline void threadgroup_barrier(mem_flags) {
  emulator::threadgroup_barrier();
}

enum SimdOp { kSimdSum, kSimdMax, kSimdMin, kSimdShuffle, kSimdMatrix, kSimdBarrier };
inline void simdgroup_barrier(mem_flags) {
  emulator::simdgroup_barrier(kSimdBarrier);
}

// The values of a simdgroup's lanes.
template <typename T>
class Lanes {
 public:
  Lanes(const T& own, SimdOp op) {
    uint32_t words[kWords] = {};
    std::memcpy(words, &own, sizeof own);
    all_ = emulator::simd_exchange(words, kWords, op);
  }
  bool has(uint32_t lane) const { return lane < 32 && (all_.lanes >> lane & 1U) != 0; }
  bool complete() const { return all_.lanes == 0xFFFFFFFFU; }
  T operator[](uint32_t lane) const {
    T value;
    std::memcpy(&value, all_.words + lane * kWords, sizeof value);
    return value;
  }

 private:
  static constexpr int kWords = (sizeof(T) + 3) / 4;
  static_assert(kWords <= emulator::kMaxSimdWords, "too large for a simd operation");
  emulator::SimdWords all_;
};

template <typename T>
inline T simd_sum(T value) {
  const Lanes<T> all(value, kSimdSum);
  T sum = T(0.0F);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (all.has(lane)) sum = T(sum + all[lane]);
  }
  return sum;
}
template <typename T>
inline T simd_max(T value) {
  const Lanes<T> all(value, kSimdMax);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (all.has(lane) && value < all[lane]) value = all[lane];
  }
  return value;
}
template <typename T>
inline T simd_min(T value) {
  const Lanes<T> all(value, kSimdMin);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (all.has(lane) && all[lane] < value) value = all[lane];
  }
  return value;
}

// Metal leaves undefined what comes of a lane that is not there; a lane's own value is one such.
template <typename T>
inline T value_of_lane(T own, uint32_t lane) {
  const Lanes<T> all(own, kSimdShuffle);
  return all.has(lane) ? all[lane] : own;
}
template <typename T>
inline T simd_shuffle(T value, uint32_t lane) {
  return value_of_lane(value, lane);
}
template <typename T>
inline T simd_shuffle_down(T value, uint32_t by) {
  return value_of_lane(value, emulator::simd_lane() + by);
}
template <typename T>
inline T simd_shuffle_up(T value, uint32_t by) {
  return value_of_lane(value, emulator::simd_lane() - by);
}
template <typename T>
inline T simd_shuffle_xor(T value, uint32_t mask) {
  return value_of_lane(value, emulator::simd_lane() ^ mask);
}

// Where the first of a lane's two elements is, as Apple's GPUs have it: the next is one column further.
struct MatrixPlace {
  uint32_t row, col;
};
inline MatrixPlace matrix_place(uint32_t lane) {
  return {lane / 16 * 4 + lane / 2 % 4, lane / 8 % 2 * 4 + lane % 2 * 2};
}
// Of an element: its lane and which of the two.
inline uint32_t matrix_lane(uint32_t row, uint32_t col) {
  return row / 4 * 16 + col / 4 * 8 + row % 4 * 2 + col / 2 % 2;
}

// 8x8 matrices that the lanes of a simdgroup share, two elements each; all 32 lanes call each function.
template <typename T, int Cols = 8, int Rows = Cols>
struct simdgroup_matrix {
  static_assert(Cols == 8 && Rows == 8, "the one size there is");
  T elements[2];
};

template <typename T, int Cols, int Rows = Cols>
inline simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
  return {{value, value}};
}

// Column and row; of one number, both.
struct MatrixOrigin {
  ulong x, y;
  MatrixOrigin(ulong both = 0) : x(both), y(both) {}
};

template <typename T>
inline void simdgroup_load(simdgroup_matrix<T>& to, const T* from, ulong row = 8, MatrixOrigin origin = 0,
                           bool transpose = false) {
  const MatrixPlace at = matrix_place(emulator::simd_lane());
  from += origin.y * row + origin.x;
  for (uint32_t i = 0; i < 2; ++i) {
    to.elements[i] = from[transpose ? (at.col + i) * row + at.row : at.row * row + at.col + i];
  }
}
template <typename T>
inline void simdgroup_store(const simdgroup_matrix<T>& from, T* to, ulong row = 8, MatrixOrigin origin = 0,
                            bool transpose = false) {
  const MatrixPlace at = matrix_place(emulator::simd_lane());
  to += origin.y * row + origin.x;
  for (uint32_t i = 0; i < 2; ++i) {
    to[transpose ? (at.col + i) * row + at.row : at.row * row + at.col + i] = from.elements[i];
  }
}
// to = a * b + c
template <typename To, typename A, typename B, typename C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<To>& to, const simdgroup_matrix<A>& a,
                                          const simdgroup_matrix<B>& b, const simdgroup_matrix<C>& c) {
  struct Pairs {
    float a[2], b[2];
  };
  const Lanes<Pairs> all({{float(a.elements[0]), float(a.elements[1])}, {float(b.elements[0]), float(b.elements[1])}},
                         kSimdMatrix);
  const MatrixPlace at = matrix_place(emulator::simd_lane());
  float sums[2] = {float(c.elements[0]), float(c.elements[1])};
  for (uint32_t k = 0; k < 8; ++k) {
    const float in_a = all[matrix_lane(at.row, k)].a[k % 2];
    const Pairs in_b = all[matrix_lane(k, at.col)];
    for (uint32_t i = 0; i < 2; ++i) sums[i] += in_a * in_b.b[i];
  }
  // A lane that is missing has elements that nobody knows.
  for (uint32_t i = 0; i < 2; ++i) to.elements[i] = To(all.complete() ? sums[i] : NAN);
}
template <typename To, typename A, typename B>
inline void simdgroup_multiply(simdgroup_matrix<To>& to, const simdgroup_matrix<A>& a, const simdgroup_matrix<B>& b) {
  simdgroup_multiply_accumulate(to, a, b, make_filled_simdgroup_matrix<float, 8>(0.0F));
}

}  // namespace metal
