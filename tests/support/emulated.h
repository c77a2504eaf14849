// Backends whose GPU is emulated.
#pragma once

#include <string_view>

#include "backend/factory.h"

namespace inferno {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INFERNO_SANITIZED
#endif
#endif

inline bool is_emulated(std::string_view backend) {
  return create_backend(backend)->description().starts_with("Emulated");
}

// Under a sanitizer such a backend needs minutes for whole models and for all cases of all ops; the tests of its
// kernels (tests/metal) run there, and all of it without one in `make check-metal`.
inline bool is_too_slow([[maybe_unused]] std::string_view backend) {
#ifdef INFERNO_SANITIZED
  return is_emulated(backend);
#else
  return false;
#endif
}

}  // namespace inferno
