#include "model/rope.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

std::vector<float> read_factors(const ModelFile& file, int32_t pairs) {
  const FileTensor* tensor = file.find_tensor(kRopeFactorsTensor);
  if (tensor == nullptr) return {};
  if (tensor->dtype != DType::f32 || tensor->shape.elements() != pairs) {
    fail("\"{}\": {} must be {} values of type F32", file.path(), kRopeFactorsTensor, pairs);
  }
  std::vector<float> factors(static_cast<size_t>(pairs));
  file.read_tensor(*tensor, std::as_writable_bytes(std::span(factors)));
  for (const float factor : factors) {
    if (!(factor > 0) || !std::isfinite(factor)) fail("\"{}\": {} holds {}", file.path(), kRopeFactorsTensor, factor);
  }
  return factors;
}

// Radians per position of a pair of dimensions.
double frequency_of(const RopeConfig& rope, size_t pair) {
  const double exponent = -2.0 * static_cast<double>(pair) / rope.rotated_dims;
  const float factor = rope.factors.empty() ? 1.0F : rope.factors[pair];
  return std::pow(rope.base, exponent) / factor * rope.position_scale;
}

// Positive numbers alone do not make an angle: of 1e-320 the inverse is infinite.
void check_angles(const ConfigKeys& keys, const RopeConfig& rope) {
  for (size_t i = 0; i < static_cast<size_t>(rope.rotated_dims / 2); ++i) {
    if (std::isfinite(frequency_of(rope, i) * std::numeric_limits<int32_t>::max())) continue;
    fail("\"{}\": {} {:g} and the scaling make angles that are not finite", keys.file().path(),
         keys.key("rope.freq_base"), rope.base);
  }
}

}  // namespace

RopeConfig read_rope(const ConfigKeys& keys, int32_t head_dim) {
  const ModelFile& file = keys.file();
  RopeConfig rope;
  rope.base = keys.positive("rope.freq_base", 10000.0);
  rope.rotated_dims = keys.find_size("rope.dimension_count").value_or(head_dim);
  if (rope.rotated_dims % 2 != 0 || rope.rotated_dims > head_dim) {
    fail("\"{}\": {} is {}, must be even and at most the head's {}", file.path(), keys.key("rope.dimension_count"),
         rope.rotated_dims, head_dim);
  }
  const std::string* scaling = keys.find_string("rope.scaling.type");
  if (scaling != nullptr && *scaling == "linear") {
    rope.position_scale = 1 / keys.positive("rope.scaling.factor", 1.0);
  } else if (scaling != nullptr && *scaling != "none") {
    fail("\"{}\": rope scaling of type \"{}\" is not supported (supported: none, linear, and Llama 3's as {})",
         file.path(), printable(*scaling), kRopeFactorsTensor);
  }
  rope.factors = read_factors(file, rope.rotated_dims / 2);
  check_angles(keys, rope);
  return rope;
}

// Computed in double: an angle of thousands of radians keeps few digits in float.
std::vector<float> rope_table(const RopeConfig& rope, int32_t context) {
  const auto pairs = static_cast<size_t>(rope.rotated_dims / 2);
  std::vector<float> table(static_cast<size_t>(context) * pairs * 2);
  for (size_t i = 0; i < pairs; ++i) {
    const double frequency = frequency_of(rope, i);
    for (size_t p = 0; p < static_cast<size_t>(context); ++p) {
      const double angle = static_cast<double>(p) * frequency;
      table[(p * pairs + i) * 2] = static_cast<float>(std::cos(angle));
      table[(p * pairs + i) * 2 + 1] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace inferno
