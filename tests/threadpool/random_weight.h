// Random weights of any size, generated quickly: a few quantized rows, repeated at a distance no layout groups rows by.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/weight.h"
#include "quant/quant.h"

namespace inferno::testing {

class RandomRows final : public WeightSource {
 public:
  RandomRows(DType dtype, const Shape& shape, uint32_t seed) : name_("random"), dtype_(dtype), shape_(shape) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1.0F / std::sqrt(static_cast<float>(shape.cols())));
    row_bytes_ = static_cast<size_t>(row_bytes(dtype, shape.cols()));
    rows_.resize(kDistinctRows * row_bytes_);
    std::vector<float> row(static_cast<size_t>(shape.cols()));
    for (size_t r = 0; r < kDistinctRows; ++r) {
      for (float& value : row) value = normal(random);
      quantize_row(dtype, row.data(), rows_.data() + r * row_bytes_, shape.cols());
    }
  }
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] DType dtype() const override { return dtype_; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    for (size_t done = 0; done < out.size(); done += row_bytes_) {
      const size_t row = (offset + done) / row_bytes_ % kDistinctRows;
      std::memcpy(out.data() + done, rows_.data() + row * row_bytes_, row_bytes_);
    }
  }

 private:
  static constexpr size_t kDistinctRows = 13;
  std::string name_;
  DType dtype_;
  Shape shape_;
  size_t row_bytes_ = 0;
  std::vector<std::byte> rows_;
};

}  // namespace inferno::testing
