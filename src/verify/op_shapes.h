// One op's part of check_arguments (op_arguments.h): what its definition says about types, shapes and indices.
#pragma once

#include "backend/plan.h"

namespace inferno {

// Throws std::runtime_error with what is wrong. All that the args point to must be memory of the size they say.
void check_shapes(const OpRecord& record);

}  // namespace inferno
