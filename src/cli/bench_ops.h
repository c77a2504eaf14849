// Every op of the op list alone, at the shapes of a 0.6B model.
#pragma once

#include <vector>

#include "cli/bench_rows.h"
#include "engine/engine.h"

namespace inferno::cli {

// Ops the backend cannot run (primitives on a device) are left out. Weights are Q8_0, ops with several kernels by type
// appear once per common type.
[[nodiscard]] std::vector<BenchRow> bench_ops(const EngineOptions& options, int32_t repeat);

}  // namespace inferno::cli
