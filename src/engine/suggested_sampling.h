// How a model's file says that its texts are best drawn: general.sampling.*.
#pragma once

#include <optional>

#include "file/model_file.h"
#include "inferno/sampling.h"

namespace inferno {

// Empty where the file says nothing, or (with a warning) what makes no sense.
[[nodiscard]] std::optional<SamplingSettings> suggested_sampling(const ModelFile& file);

}  // namespace inferno
