// How much every column of a model's matrices matters: the mean square of what it is multiplied with, over a text.
//
// Files are llama.cpp's, both ways: GGUF with two tensors for each matrix, NAME.in_sum2 (matrices, columns) and
// NAME.counts (matrices, 1), all F32; the older .dat is read too. Files are untrusted: whatever is wrong with one is an
// Error that names it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace inferno {

struct Importance {
  std::vector<float> sums;    // (matrices, columns): sums of squares
  std::vector<float> counts;  // (matrices): what they are sums of. One matrix, or one for each expert
};

struct Imatrix {
  std::map<std::string, Importance, std::less<>> entries = {};  // by the name of the matrix
  std::vector<std::string> datasets = {};                       // names of the texts
  uint32_t chunks = 0;
  uint32_t chunk_tokens = 0;

  [[nodiscard]] static Imatrix read(const std::string& path);
  void write(const std::string& path) const;

  // The mean squares for the rows of a matrix of this shape, (matrices, columns) again; empty where nothing is known.
  // An Error when the file is about another shape: it belongs to another model.
  [[nodiscard]] std::vector<float> means(std::string_view name, const Shape& shape) const;
};

}  // namespace inferno
