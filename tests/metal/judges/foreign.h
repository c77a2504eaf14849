// Registers kernels whose parameters C++ knows better than a regular expression does: of templates of templates.
#pragma once

#include <metal_stdlib>
#undef device
#undef threadgroup
#undef thread
#undef constant
#undef kernel

#include <utility>

#include "function_constants.h"
#include "parameters.h"

namespace emulator {

template <typename T>
struct Argument {
  static T of(const Parameter& parameter, const Buffers&, const Position& p) {
    return static_cast<T>(position_of(parameter.source, p).x);
  }
};
template <typename T>
struct Argument<metal::vec<T, 3>> {
  static metal::vec<T, 3> of(const Parameter& parameter, const Buffers&, const Position& p) {
    const Size size = position_of(parameter.source, p);
    return {size.x, size.y, size.z};
  }
};
template <typename T>
struct Argument<T*> {
  static T* of(const Parameter& parameter, const Buffers& buffers, const Position&) {
    return static_cast<T*>(parameter.source == Source::threadgroup_memory ? threadgroup_parameter(parameter.index)
                                                                          : buffers.at(parameter.index));
  }
};
template <typename T>
struct Argument<T&> {
  static T& of(const Parameter& parameter, const Buffers& buffers, const Position&) {
    return *static_cast<T*>(buffers.at(parameter.index));
  }
};

template <auto Function, const auto& Parameters, typename... A, size_t... I>
void call(void (*)(A...), const Buffers& buffers, const Position& p, std::index_sequence<I...>) {
  Function(Argument<A>::of(Parameters[I], buffers, p)...);
}
template <typename... A>
constexpr auto indices(void (*)(A...)) {
  return std::index_sequence_for<A...>();
}
template <auto Function, const auto& Parameters>
Kernel foreign_kernel(const char* name) {
  return {name, buffers_in(Parameters), [](const Buffers& bound, const Position& p) {
            call<Function, Parameters>(Function, bound, p, indices(Function));
          }};
}

}  // namespace emulator

#define device
#define threadgroup
#define thread
#define constant const
#define kernel
