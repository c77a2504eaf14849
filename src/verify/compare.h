// How far two results of the same op, or group of ops, are apart, and how far they may be.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/op_image.h"

namespace inferno {

// One written argument of an op, tested against reference. What an op adds to a residual is compared without the
// residual, which may be much larger.
struct FieldDifference {
  size_t op = 0;  // of the group
  std::string field;
  int64_t elements = 0;
  double max_abs = 0;    // largest |tested - reference|
  double max_rel = 0;    // largest |tested - reference| / |reference|; infinite where the reference is 0
  uint64_t max_ulp = 0;  // largest distance in representable floats
  double nmse = 0;       // sum of squared differences / sum of squared reference values; infinite on a lone NaN
  double rounding = 0;   // nmse that rounding the sum with a residual may give
  int64_t worst = 0;     // element where max_abs is
  double worst_reference = 0;
  double worst_tested = 0;

  // Results that must be bit-equal (a limit of 0) are.
  [[nodiscard]] bool beyond(double limit) const { return nmse > (limit > 0 ? limit + rounding : 0); }
};

// All written arguments in two images of the same ops; `before` are their inputs. Private results are nobody's
// business. Of a cache the rows at the batch's slots are compared, as values. Integer outputs that differ give an
// infinite nmse.
[[nodiscard]] std::vector<FieldDifference> compare_written(const OpImage& before, const OpImage& reference,
                                                           const OpImage& tested);

// What a result is held to.
enum class Numerics : uint8_t {
  definition,     // the default body, in exact f32: kernels convert activations as the contract says
  cpu_kernels,    // another CPU table's kernel, which follows the same contract
  wide,           // the default body, too; quantized weights and their activations are rounded to bf16
  default_bodies  // both sides run the default body: f32 everywhere
};

// Largest nmse the op may have, from its weights' and cache's types. One table for tests, verify and shadow checks.
[[nodiscard]] double nmse_limit(const OpRecord& record, Numerics numerics);
// Of each op of a group, which is held to numerics[i]: what an op's input differs by, its result may differ by too.
[[nodiscard]] std::vector<double> nmse_limits(std::span<const OpRecord> group, std::span<const Numerics> numerics);

}  // namespace inferno
