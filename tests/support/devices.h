// The backends that tests of whole models can use here.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "backend/factory.h"
#include "base/error.h"
#include "support/emulated.h"

namespace inferno {

// Those of the names that are in this build and run on this machine.
inline std::vector<std::string> backends_of(std::initializer_list<const char*> wanted) {
  std::vector<std::string> names;
  for (const char* name : wanted) {
    try {
      (void)create_backend(name);
      if (!is_too_slow(name)) names.emplace_back(name);
    } catch (const Error&) {
      continue;  // not in this build, or no device
    }
  }
  return names;
}

// GPUs, real or emulated.
inline std::vector<std::string> device_backends() {
  return backends_of({"cuda", "metal"});
}

}  // namespace inferno
