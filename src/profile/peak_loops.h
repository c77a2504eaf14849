// Loops that do nothing but multiply, as fast as this CPU can.
#pragma once

#include <cstdint>

#include "backend/op_cost.h"

namespace inferno {

// Runs `turns` turns of the best loop for the kind on this thread; returns the operations done.
double run_multiply_loop(Multiply kind, int64_t turns) noexcept;

}  // namespace inferno
