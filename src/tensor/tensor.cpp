#include "tensor/tensor.h"

#include <fmt/core.h>

#include <cctype>

namespace inferno {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank; ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", shape[i]);
  return text + "]";
}

std::string to_string(const Tensor& tensor) {
  std::string text;
  for (const char c : dtype_name(tensor.dtype)) text.push_back(static_cast<char>(std::tolower(c)));
  return text + to_string(tensor.shape);
}

}  // namespace inferno
