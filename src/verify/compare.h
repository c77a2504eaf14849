// How far two results of the same op are apart, and how far they may be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/op_image.h"

namespace inferno {

// One written argument of an op, tested against reference.
struct FieldDifference {
  std::string field;
  int64_t elements = 0;
  double max_abs = 0;    // largest |tested - reference|
  double max_rel = 0;    // largest |tested - reference| / |reference|; infinite where the reference is 0
  uint64_t max_ulp = 0;  // largest distance in representable floats
  double nmse = 0;       // sum of squared differences / sum of squared reference values; infinite on a lone NaN
  int64_t worst = 0;     // element where max_abs is
  double worst_reference = 0;
  double worst_tested = 0;
};

// All written arguments of two images of one op. Of a cache the rows at the batch's slots are compared, as values.
// Integer outputs that differ give an infinite nmse.
[[nodiscard]] std::vector<FieldDifference> compare_written(const OpImage& reference, const OpImage& tested);

// What a result is held to.
enum class Numerics : uint8_t {
  definition,     // the default body, in exact f32: kernels convert activations as the contract says
  cpu_kernels,    // another CPU table's kernel, which follows the same contract
  default_bodies  // both sides run the default body: f32 everywhere
};

// Largest nmse the op may have, from its weights' and cache's types. One table for tests, verify and shadow checks.
[[nodiscard]] double nmse_limit(const OpRecord& record, Numerics numerics);

}  // namespace inferno
