// The GPU that tests run on.
#pragma once

#include <memory>

#include "backend/cuda/cuda.h"
#include "base/error.h"

namespace inferno {

// Null where there is none.
[[nodiscard]] inline std::unique_ptr<Backend> device_or_null() {
  try {
    return make_cuda_backend();
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace inferno
