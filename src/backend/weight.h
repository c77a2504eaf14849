// Model weights as the ops see them: a handle made once by Backend::load_weight and never changed.
//
// One handle is one copy in memory. Its layout is chosen when it is loaded, from the type and the uses; every layout
// can give back one canonical row (the bytes the file has), which serves embedding look-ups and verification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace inferno {

// What ops will do with a weight; a set, combined with |.
enum class WeightUse : uint8_t {
  vector = 1,  // read as a vector of f32: norms, biases
  matmul = 2,  // multiplied: linear, logits
  gather = 4,  // rows looked up: embed
};
[[nodiscard]] constexpr WeightUse operator|(WeightUse a, WeightUse b) {
  return static_cast<WeightUse>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}
[[nodiscard]] constexpr bool has_use(WeightUse set, WeightUse use) {
  return (static_cast<uint8_t>(set) & static_cast<uint8_t>(use)) != 0;
}

// The layer of weights that belong to none: embedding, last norm, output head.
inline constexpr int32_t kNoLayer = -1;

// Where a weight comes from. Backends read it piece by piece, so that a tensor is never held twice.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  [[nodiscard]] virtual DType dtype() const = 0;
  [[nodiscard]] virtual const Shape& shape() const = 0;  // {rows, cols}, or {n} for a vector
  [[nodiscard]] virtual int32_t layer() const { return kNoLayer; }
  // Fills `out` with the canonical bytes from `offset` on: whole rows, for several threads at once.
  virtual void read(uint64_t offset, std::span<std::byte> out) const = 0;
};

class Weight {
 public:
  Weight(std::string name, DType dtype, const Shape& shape, int32_t layer = kNoLayer)
      : name_(std::move(name)), shape_(shape), dtype_(dtype), layer_(layer) {}
  explicit Weight(const WeightSource& source) : Weight(source.name(), source.dtype(), source.shape(), source.layer()) {}
  virtual ~Weight() = default;
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] int32_t layer() const { return layer_; }
  [[nodiscard]] int64_t rows() const { return shape_.rows(); }
  [[nodiscard]] int64_t cols() const { return shape_.cols(); }
  // Memory this handle occupies on its backend.
  [[nodiscard]] virtual uint64_t bytes() const = 0;
  // The canonical bytes of one row: row_bytes(dtype, cols) of them.
  virtual void read_row(int64_t row, std::span<std::byte> out) const = 0;

 private:
  std::string name_;
  Shape shape_;
  DType dtype_;
  int32_t layer_;
};

}  // namespace inferno
