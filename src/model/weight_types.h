// The types a model's weights can have, by the names users know: one type for all matrices, or a mix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "inferno/tools.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace inferno {

// Every weight type, and the mixes Q4_K_M and Q5_K_M, as weight_type_names() (inferno/tools.h) lists them. The
// functions below take these names in any case; an unknown one is a usage Error that lists them.
// The name as it is listed.
[[nodiscard]] std::string_view weight_type_name(std::string_view type);

struct WeightType {
  DType dtype;
  DType wanted;  // another one when its blocks do not divide the rows
};
// What a matrix becomes in a model of the named type or mix. `tied`: the model has no output head of its own.
[[nodiscard]] WeightType choose_weight_type(std::string_view type, std::string_view tensor, const Shape& shape,
                                            bool tied, int32_t layers);

// general.file_type of such a model, as other programs number it, and back: empty for a number without a name here.
[[nodiscard]] uint32_t gguf_file_type(std::string_view type);
[[nodiscard]] std::string_view file_type_name(uint64_t file_type);

}  // namespace inferno
