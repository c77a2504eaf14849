// The model that is part of the program, so that it can tell a story without any file.
#pragma once

#include <string_view>

#include "gguf/gguf.h"

namespace inferno {

// An Error when this build was made without it.
[[nodiscard]] GgufFile open_builtin_model();
// A path, or the built-in model for an empty one.
[[nodiscard]] GgufFile open_model(const std::string& path);

}  // namespace inferno
