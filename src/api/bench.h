// The benchmarks of inferno/tools.h for callers that have an engine's options of their own.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "file/model_file.h"
#include "inferno/tools.h"

namespace inferno {

[[nodiscard]] Repeats summarize(std::vector<double> values);
// `on_end`: called before the engine goes away.
[[nodiscard]] std::vector<BenchRow> bench_model(const ModelFile& file, EngineOptions options, const BenchOptions& what,
                                                const std::function<void(Engine&)>& on_end);

}  // namespace inferno
