// The tensors of a model out of the stored ones of its folder.
#pragma once

#include <vector>

#include "hf/config.h"
#include "hf/families.h"
#include "hf/recipe.h"
#include "hf/safetensors.h"

namespace inferno::hf {

// In the order of the stored ones; those of vision, audio and of layers that predict ahead are left out. A tensor that
// the family does not have, of a shape or type that does not fit what is done to it, or an expert that is missing, is
// an Error. The result points into `stored`.
[[nodiscard]] std::vector<HfTensor> make_tensors(const Config& config, const Family& family, const Safetensors& stored,
                                                 const ScaleBlock& block);

}  // namespace inferno::hf
