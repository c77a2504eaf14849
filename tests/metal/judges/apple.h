// Registers kernels that Apple's compiler compiled; apple_kernel.py writes a function for each that takes the address
// of every argument.
#pragma once

#include <iterator>

#include "parameters.h"

namespace emulator {

// Stands for buffers that function constants leave out: before those have values, the compiler may read a word of each
// for nothing.
inline uint64_t left_out = 0;

template <void (*Function)(void* const*), const auto& Parameters>
Kernel apple_kernel(const char* name) {
  return {name, buffers_in(Parameters), [](const Buffers& buffers, const Position& p) {
            Size positions[std::size(Parameters)];
            void* arguments[std::size(Parameters)];
            for (size_t i = 0; i < std::size(Parameters); ++i) {
              if (Parameters[i].source == Source::buffer) {
                const auto bound = buffers.find(Parameters[i].index);
                arguments[i] = bound != buffers.end() ? bound->second : &left_out;
              } else {
                positions[i] = position_of(Parameters[i].source, p);
                arguments[i] = &positions[i];
              }
            }
            Function(arguments);
          }};
}

}  // namespace emulator
