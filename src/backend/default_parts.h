// What default bodies share (fused_*.cpp).
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/backend.h"

namespace inferno::fused_defaults {

[[nodiscard]] inline Tensor temporary(Backend& b, const Shape& shape, DType dtype = DType::f32) {
  Tensor t{nullptr, shape, dtype};
  t.data = b.scratch(static_cast<size_t>(t.bytes()));
  return t;
}

// Some columns of a matrix.
[[nodiscard]] inline Tensor columns(Backend& b, const Tensor& x, int64_t first, int64_t count) {
  const Tensor part = temporary(b, Shape(x.rows(), count));
  b.copy_2d_from_cols({.x = x, .col_offset = first, .out = part});
  return part;
}

// A vector weight as a row tensor.
[[nodiscard]] inline Tensor vector_of(Backend& b, const Weight& w) {
  const Tensor row = temporary(b, Shape(1, w.cols()));
  b.repeat_row_as_matrix({.weight_row = &w, .out = row});
  return row.view(Shape(w.cols()));
}

// Products with rows of weights, which are dequantized some at a time in the same memory.
class RowProducts {
 public:
  // For up to that many tokens, columns and rows.
  RowProducts(Backend& b, int64_t tokens, int64_t k, int64_t n)
      : block_(std::min(kRowBlock, n)),
        rows_(temporary(b, Shape(block_, k))),
        columns_(temporary(b, Shape(k, block_))),
        product_(temporary(b, Shape(tokens, block_))) {}

  // x [T, K] times rows [begin, begin + N) of w, transposed, into out [T, N].
  void run(Backend& b, const Tensor& x, const Weight& w, int64_t begin, const Tensor& out) const {
    const int64_t n = out.cols();
    const int64_t k = w.cols();
    for (int64_t first = 0; first < n; first += block_) {
      const int64_t count = std::min(block_, n - first);
      const Tensor part = product_.view(Shape(x.rows(), count));
      b.gather_rows({.table = &w, .first_row = begin + first, .out = rows_.view(Shape(count, k))});
      b.transpose_2d({.x = rows_.view(Shape(count, k)), .out = columns_.view(Shape(k, count))});
      b.matmul({.a = x, .b = columns_.view(Shape(k, count)), .out = part});
      b.copy_2d_into_cols({.src = part, .col_offset = first, .dst = out});
    }
  }

 private:
  static constexpr int64_t kRowBlock = 256;
  int64_t block_;
  Tensor rows_, columns_, product_;
};

}  // namespace inferno::fused_defaults
