// How long the steps of a model take on a machine that nobody has measured yet; the first steps correct it.
#pragma once

#include "backend/backend.h"
#include "engine/step_cost.h"
#include "model/config.h"

namespace inferno {

[[nodiscard]] StepCost first_guess(const ModelConfig& c, uint64_t weight_bytes, const Backend& backend);

}  // namespace inferno
