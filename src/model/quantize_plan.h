// What every tensor of a file becomes when it is quantized.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "file/model_file.h"
#include "inferno/tools.h"
#include "tensor/dtype.h"

namespace inferno {

struct PlannedTensor {
  const FileTensor* tensor;  // of the input
  DType dtype;
};

struct QuantizePlan {
  std::vector<PlannedTensor> tensors;  // in file order
  std::vector<std::string> fallbacks;  // as QuantizeReport's
  bool from_quantized = false;         // a tensor that changes its type was quantized before
};

// A tensor of a type that inferno cannot read, a pattern that is no regular expression and an unknown type are Errors.
[[nodiscard]] QuantizePlan plan_quantize(const ModelFile& input, std::string_view type, const QuantizeOptions& options);

}  // namespace inferno
