// One op's part of check_arguments (op_arguments.h): what its definition says about types, shapes and indices.
#pragma once

#include <stdexcept>

#include "backend/plan.h"

namespace inferno {

// What both parts use: throws std::runtime_error(otherwise) unless it holds.
inline void need(bool holds, const char* otherwise) {
  if (!holds) throw std::runtime_error(otherwise);
}

// Throws std::runtime_error with what is wrong. All that the args point to must be memory of the size they say.
void check_shapes(const OpRecord& record);

}  // namespace inferno
