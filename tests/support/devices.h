// The GPUs that tests of whole models can use here.
#pragma once

#include <string>
#include <vector>

#include "backend/factory.h"
#include "base/error.h"
#include "support/emulated.h"

namespace inferno {

// Backends of GPUs, real or emulated, in this build and on this machine.
inline std::vector<std::string> device_backends() {
  std::vector<std::string> names;
  for (const char* name : {"cuda", "metal"}) {
    try {
      (void)create_backend(name);
      if (!is_too_slow(name)) names.emplace_back(name);
    } catch (const Error&) {
      continue;  // not in this build, or no device
    }
  }
  return names;
}

}  // namespace inferno
