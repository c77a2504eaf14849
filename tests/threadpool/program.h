// The main function of a test program: what it throws becomes one line and exit status 1.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <exception>

namespace inferno::testing {

inline int run_program(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace inferno::testing
