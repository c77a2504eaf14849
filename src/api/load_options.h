// What a user says about loading, as the engine takes it.
#pragma once

#include "engine/engine.h"
#include "inferno/llm.h"

namespace inferno {

// Values that make no sense are usage Errors that name the option.
[[nodiscard]] EngineOptions engine_options(const LoadOptions& options);

}  // namespace inferno
