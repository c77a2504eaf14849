// How a tensor of a model comes from stored ones: which elements, in which order, in which type.
//
// A tensor's rows come in pieces; each piece takes its rows from one stored tensor. Element (row, column) of a piece is
// the stored element base + (digits of row · strides) + (digits of column · strides), where the digits of a number are
// those of the mixed base that the axes' counts make, outermost first. That covers stacked experts (a piece each), rows
// in another order, fused tensors split or joined, and transposed matrices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "file/model_file.h"
#include "hf/safetensors.h"

namespace inferno::hf {

struct Axis {
  int64_t count = 1;
  int64_t stride = 0;  // in elements of the stored tensor
};
using Axes = std::array<Axis, 3>;  // outermost first; those not needed are in front

[[nodiscard]] int64_t count_of(const Axes& axes);

struct Piece {
  const StoredTensor* source = nullptr;
  int64_t base = 0;
  Axes rows;
  Axes columns;
  const StoredTensor* scale = nullptr;  // of FP8: one number, one for each row, or one for each block
};

// What happens to each value.
enum class Values { as_stored, plus_one, minus_exp };

struct Recipe {
  std::vector<Piece> pieces;  // of the same number of columns and the same type
  Values values = Values::as_stored;
  bool mxfp4 = false;           // sources are bytes of two values, scale one byte for each 32
  std::vector<float> constant;  // the tensor itself, where there are no pieces
};

struct HfTensor final : FileTensor {
  Recipe recipe;
};

// `block`: rows and columns of the stored matrix that a scale is of, where it is one for each block.
struct ScaleBlock {
  int64_t rows = 128;
  int64_t columns = 128;
};

// Bytes [begin, begin + out.size()) of the tensor.
void read_recipe(const Safetensors& files, const HfTensor& tensor, const ScaleBlock& block, uint64_t begin,
                 std::span<std::byte> out);

// All of a stored tensor as floats; it must be of a float type and small.
[[nodiscard]] std::vector<float> read_floats(const Safetensors& files, const StoredTensor& tensor);

}  // namespace inferno::hf
