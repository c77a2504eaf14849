// Shape and Tensor: what the ops talk about.
//
// A Tensor is a view: it owns nothing, is trivially copyable, and names memory of one backend (host memory for CPU
// backends, device memory for GPU ones). It is dense and row-major; the last dimension is contiguous.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace inferno {

inline constexpr int kMaxDims = 4;

// Up to four dimensions, outermost first: a matrix is {rows, cols}. Unused dimensions are 1 and stand behind `rank`.
struct Shape {
  std::array<int64_t, kMaxDims> dims = {1, 1, 1, 1};
  int rank = 0;

  constexpr Shape() = default;
  constexpr Shape(int64_t d0) : dims{d0, 1, 1, 1}, rank(1) {}
  constexpr Shape(int64_t d0, int64_t d1) : dims{d0, d1, 1, 1}, rank(2) {}
  constexpr Shape(int64_t d0, int64_t d1, int64_t d2) : dims{d0, d1, d2, 1}, rank(3) {}
  constexpr Shape(int64_t d0, int64_t d1, int64_t d2, int64_t d3) : dims{d0, d1, d2, d3}, rank(4) {}

  [[nodiscard]] constexpr int64_t operator[](int axis) const { return dims[static_cast<size_t>(axis)]; }
  [[nodiscard]] constexpr int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  // The last dimension, and the product of all before it.
  [[nodiscard]] constexpr int64_t cols() const { return rank == 0 ? 1 : dims[static_cast<size_t>(rank - 1)]; }
  [[nodiscard]] constexpr int64_t rows() const { return cols() == 0 ? 0 : elements() / cols(); }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

[[nodiscard]] std::string to_string(const Shape& shape);  // "[2,1024]"

struct Tensor {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;

  [[nodiscard]] bool empty() const { return data == nullptr; }
  [[nodiscard]] int64_t rows() const { return shape.rows(); }
  [[nodiscard]] int64_t cols() const { return shape.cols(); }
  [[nodiscard]] int64_t elements() const { return shape.elements(); }
  [[nodiscard]] int64_t bytes() const { return row_bytes(dtype, elements()); }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data);
  }
  [[nodiscard]] float* f32() const { return as<float>(); }
  // The same memory under another shape of as many or fewer elements.
  [[nodiscard]] Tensor view(const Shape& other) const { return {data, other, dtype}; }
  // Rows [begin, begin + count) of a matrix.
  [[nodiscard]] Tensor row_range(int64_t begin, int64_t count) const {
    return {as<char>() + begin * row_bytes(dtype, cols()), Shape(count, cols()), dtype};
  }
};

[[nodiscard]] std::string to_string(const Tensor& tensor);  // "f32[2,1024]"

}  // namespace inferno
