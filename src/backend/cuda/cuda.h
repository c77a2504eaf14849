// The CUDA backend, seen from outside: one function, no CUDA headers.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace inferno {

// On device 0. Without a GPU or a driver: an Error in one line.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend();

}  // namespace inferno
