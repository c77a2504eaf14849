// The Metal backend, seen from outside: one function, no Metal headers.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace inferno {

// On the system's default GPU. Without one: an Error in one line.
[[nodiscard]] std::unique_ptr<Backend> make_metal_backend();
// A fingerprint of the kernels' text.
[[nodiscard]] std::string metal_kernels_id();

}  // namespace inferno
