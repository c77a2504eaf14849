// The CUDA backend, seen from outside: one function, no CUDA headers.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace inferno {

class Communicator;

// On device 0; ranks of one machine take its devices in turn. Without a GPU or a driver: an Error in one line.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(Communicator* ranks = nullptr);

}  // namespace inferno
