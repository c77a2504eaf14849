// Four floats at a time, for code that every CPU table shares.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace inferno::cpu {

// Four floats: a register of every machine. Compilers add and multiply them as they are.
using Quad = float __attribute__((vector_size(16)));
inline constexpr int64_t kQuad = 4;

inline Quad load(const float* from) noexcept {
  Quad value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline void store(float* to, const Quad& value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

inline float softplus(float x) noexcept {
  return x > 20 ? x : std::log1p(std::exp(x));
}

}  // namespace inferno::cpu
