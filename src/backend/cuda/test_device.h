// The GPU that tests run on, and what they ask and compare.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cuda/cuda.h"
#include "base/error.h"

namespace inferno {

// Null where there is none.
[[nodiscard]] inline std::unique_ptr<Backend> device_or_null() {
  try {
    return make_cuda_backend();
  } catch (const Error&) {
    return nullptr;
  }
}

// Squared error of `tested`, in units of the reference's squares.
[[nodiscard]] inline double nmse(const std::vector<float>& reference, const std::vector<float>& tested) {
  double errors = 0;
  double squares = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    errors += std::pow(static_cast<double>(tested[i]) - reference[i], 2);
    squares += std::pow(static_cast<double>(reference[i]), 2);
  }
  return errors / squares;
}

// Of a vocabulary of 1,000.
[[nodiscard]] inline std::vector<int32_t> prompt_of(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back((i * 131 + 17) % 1000);
  return tokens;
}

}  // namespace inferno
