// main of a benchmark: what goes wrong is said in one line.
#pragma once

#include <fmt/core.h>

#include <exception>

namespace inferno::bench {

inline int guarded_main(const char* name, int (*run)(int argc, char** argv), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace inferno::bench
