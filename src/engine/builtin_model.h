// The model that is part of the program, so that it can tell a story without any file.
#pragma once

#include <functional>
#include <string>

#include "hf/any_model_file.h"

namespace inferno {

// What its file says its path is.
inline constexpr const char* kBuiltinModelPath = "built-in model";
// An Error when this build was made without it.
[[nodiscard]] GgufFile open_builtin_model();
// The path of a file or folder, the built-in model for an empty one, or a name that the finder knows.
[[nodiscard]] AnyModelFile open_model(const std::string& path);

// What a program does about names of models that are no files: gives the path of the file, or nothing ("") for a name
// that is none of its own. Set once, before models are opened; without one every name is a path.
using ModelFinder = std::function<std::string(const std::string& name)>;
void set_model_finder(ModelFinder finder);
// The path that a name stands for: itself, where such a file exists or nobody knows better.
[[nodiscard]] std::string find_model(const std::string& name);

}  // namespace inferno
