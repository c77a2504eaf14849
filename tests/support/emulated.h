// Backends whose GPU is emulated.
#pragma once

#include <string_view>

#include "backend/factory.h"
#include "support/sanitized.h"

namespace inferno {

inline bool is_emulated(std::string_view backend) {
  return create_backend(backend)->description().starts_with("Emulated");
}

// Under a sanitizer such a backend needs minutes for whole models and for all cases of all ops; the tests of its
// kernels (tests/metal) run there, and all of it without one in `make check-metal`.
inline bool is_too_slow(std::string_view backend) {
  return kSanitized && is_emulated(backend);
}

}  // namespace inferno
