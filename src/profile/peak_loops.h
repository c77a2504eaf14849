// Loops that only multiply, at this CPU's peak rate.
#pragma once

#include <cstdint>

#include "backend/op_cost.h"

namespace inferno {

// Runs `iterations` of the best loop for the kind on this thread; returns the number of operations.
double run_multiply_loop(Multiply kind, int64_t iterations) noexcept;

}  // namespace inferno
