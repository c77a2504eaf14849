// The types a model's weights can have, by the names users know: one type for all matrices, or a mix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "inferno/tools.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace inferno {

// Names are those of weight_type_names() (inferno/tools.h). The functions below take them in any case; an unknown one
// is a usage Error that lists them. A name means what llama-quantize makes of it, tensor by tensor, so that files of
// the same name have the same size: nearly all keep the output head in Q6_K, and the mixes give more bits to values,
// down projections and attention outputs, where errors cost most. docs/quantize.md has the table.

// The name as it is listed.
[[nodiscard]] std::string_view weight_type_name(std::string_view type);

// What of a model the choice depends on, besides the tensor.
struct MixInput {
  int32_t layers = 0;
  bool tied = false;              // the model has no output head of its own: the embedding is it
  int32_t queries_per_value = 1;  // query heads that read the same values
  bool has_importance = false;    // an imatrix weights the errors
  bool pure = false;              // the main type of the mix for every matrix
};

struct WeightType {
  DType dtype;
  DType wanted;  // another one when its blocks do not divide the rows
};
// What a matrix becomes in a model of the named type or mix.
[[nodiscard]] WeightType choose_weight_type(std::string_view type, std::string_view tensor, const Shape& shape,
                                            const MixInput& model);
// What takes the place of a type in rows that its blocks do not divide.
[[nodiscard]] WeightType fit_weight_type(DType wanted, const Shape& shape);

// Whether quantizing changes the tensor at all: norms, routers and the like stay as they are, whatever their rank.
[[nodiscard]] bool is_quantizable(std::string_view tensor, const Shape& shape);

// general.file_type of such a model, as other programs number it, and back: empty for a number without a name here.
[[nodiscard]] uint32_t gguf_file_type(std::string_view type);
[[nodiscard]] std::string_view file_type_name(uint64_t file_type);

}  // namespace inferno
