// Random weights, generated where they are read: any part of a tensor, read in any order and by any thread, has the
// same bytes for the same seed, on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/weight.h"

namespace inferno {

// Number n of the stream `seed`: all 64 bits are random.
[[nodiscard]] uint64_t random_bits(uint64_t seed, uint64_t n);
// The same as a value of mean 0 and deviation 1, nearly normal.
[[nodiscard]] float random_normal(uint64_t seed, uint64_t n);

// Matrices of one type and row length. Their blocks are drawn from a pool of quantized ones, so that generating weights
// takes about as long as writing them. The values have deviation 1 / sqrt(cols): products with unit vectors stay
// near 1.
class BlockPool {
 public:
  BlockPool(DType dtype, int64_t cols, uint64_t seed);
  // Bytes [begin, begin + out.size()) of the matrix number `seed`.
  void read(uint64_t seed, uint64_t begin, std::span<std::byte> out) const;

 private:
  size_t block_bytes_;
  size_t count_;
  std::vector<std::byte> blocks_;  // (count_, block_bytes_)
};

// A matrix by itself.
class RandomWeight final : public WeightSource {
 public:
  RandomWeight(DType dtype, const Shape& shape, uint64_t seed)
      : dtype_(dtype), shape_(shape), seed_(seed), pool_(dtype, shape.cols(), seed) {}
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] DType dtype() const override { return dtype_; }
  [[nodiscard]] const Shape& shape() const override { return shape_; }
  void read(uint64_t offset, std::span<std::byte> out) const override { pool_.read(seed_, offset, out); }

 private:
  std::string name_ = "random";
  DType dtype_;
  Shape shape_;
  uint64_t seed_;
  BlockPool pool_;
};

}  // namespace inferno
