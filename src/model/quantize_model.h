// Rewrites a model file with its matrices in another type or mix of types.
#pragma once

#include <string>
#include <string_view>

#include "file/model_file.h"
#include "model/model_info.h"

namespace inferno {

// As the function of that name in inferno/tools.h.
QuantizeReport quantize_model(const ModelFile& input, const std::string& output, std::string_view type,
                              const QuantizeOptions& options = {});

}  // namespace inferno
