// The main function of a test program or benchmark: what it throws becomes one line and exit status 1.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "base/standard_streams.h"

namespace inferno {

inline int guarded_main(const char* name, int (*run)(int argc, char** argv), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    print_stderr("{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace inferno
