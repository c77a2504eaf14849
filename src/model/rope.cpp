#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/text.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

std::vector<float> read_factors(const ModelFile& file, std::string_view name, int32_t pairs) {
  const FileTensor* tensor = file.find_tensor(name);
  if (tensor == nullptr) return {};
  if (tensor->dtype != DType::f32 || tensor->shape.elements() != pairs) {
    fail("\"{}\": {} must be {} values of type F32", file.path(), name, pairs);
  }
  std::vector<float> factors(static_cast<size_t>(pairs));
  file.read_tensor(*tensor, std::as_writable_bytes(std::span(factors)));
  for (const float factor : factors) {
    if (!(factor > 0) || !std::isfinite(factor)) fail("\"{}\": {} holds {}", file.path(), name, factor);
  }
  return factors;
}

void read_yarn(const ConfigKeys& keys, RopeConfig& rope) {
  rope.yarn_factor = keys.positive("rope.scaling.factor", std::nullopt);
  rope.yarn_beta_fast = keys.positive("rope.scaling.yarn_beta_fast", rope.yarn_beta_fast);
  rope.yarn_beta_slow = keys.positive("rope.scaling.yarn_beta_slow", rope.yarn_beta_slow);
  rope.original_context = keys.size("rope.scaling.original_context_length");
  if (!(rope.base > 1))
    fail("\"{}\": {} is {}, must be above 1 for yarn", keys.file().path(), keys.key("rope.freq_base"), rope.base);
  // With the multiplier the growth of the scores is made up for elsewhere.
  const bool grows = keys.file().find_float(keys.key("rope.scaling.yarn_log_multiplier")).value_or(0) == 0;
  if (grows && rope.yarn_factor > 1) rope.magnitude *= 0.1 * std::log(rope.yarn_factor) + 1;
}

// How much of the division by the factor frequency i gets, 0 to 1.
double yarn_ramp(const RopeConfig& rope, double i) {
  const double n = rope.rotated_dims;
  const auto dimension = [&](double rotations) {
    return n * std::log(rope.original_context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(rope.base));
  };
  double low = dimension(rope.yarn_beta_fast);
  double high = dimension(rope.yarn_beta_slow);
  if (rope.yarn_truncates) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, n - 1);
  if (low == high) high += 0.001;
  return std::clamp((i - low) / (high - low), 0.0, 1.0);
}

// Radians per position of a pair of dimensions.
double frequency_of(const RopeConfig& rope, size_t pair, const std::vector<float>& factors) {
  const double exponent = -2.0 * static_cast<double>(pair) / rope.rotated_dims;
  const float factor = factors.empty() ? 1.0F : factors[pair];
  const double frequency = std::pow(rope.base, exponent) / factor * rope.position_scale;
  if (rope.yarn_factor == 0) return frequency;
  const double ramp = yarn_ramp(rope, static_cast<double>(pair));
  return frequency * (ramp / rope.yarn_factor + 1 - ramp);
}

// Queries are multiplied by this beside their magnitude.
double temperature_at(const RopeConfig& rope, double position) {
  if (rope.temperature == 0) return 1;
  return 1 + rope.temperature * std::log(std::floor(position / rope.original_context) + 1);
}

// Computed in double: an angle of thousands of radians keeps few digits in float. magnitude(p) multiplies both values.
template <typename Magnitude>
std::vector<float> make_table(const RopeConfig& rope, int32_t context, Magnitude magnitude) {
  const auto pairs = static_cast<size_t>(rope.rotated_dims / 2);
  const bool stretched = !rope.long_factors.empty() && context > rope.original_context;
  const std::vector<float>& factors = stretched ? rope.long_factors : rope.factors;
  std::vector<float> table(static_cast<size_t>(context) * pairs * 2);
  for (size_t i = 0; i < pairs; ++i) {
    const double frequency = frequency_of(rope, i, factors);
    for (size_t p = 0; p < static_cast<size_t>(context); ++p) {
      const double angle = static_cast<double>(p) * frequency;
      table[(p * pairs + i) * 2] = static_cast<float>(std::cos(angle) * magnitude(p));
      table[(p * pairs + i) * 2 + 1] = static_cast<float>(std::sin(angle) * magnitude(p));
    }
  }
  return table;
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
  rope.magnitude = keys.positive("rope.scaling.attn_factor", 1.0);
  const std::string* scaling = keys.find_string("rope.scaling.type");
  if (scaling != nullptr && *scaling == "linear") {
    rope.position_scale = 1 / keys.positive("rope.scaling.factor", 1.0);
  } else if (scaling != nullptr && *scaling == "yarn") {
    read_yarn(keys, rope);
  } else if (scaling != nullptr && *scaling != "none" && *scaling != "longrope") {
    fail(
        "\"{}\": rope scaling of type \"{}\" is not supported (supported: none, linear, yarn, longrope, and Llama 3's "
        "as {})",
        file.path(), printable(*scaling), kRopeFactorsTensor);
  }
  const int32_t pairs = rope.rotated_dims / 2;
  rope.factors = read_factors(file, kRopeFactorsTensor, pairs);
  rope.long_factors = read_factors(file, kLongRopeFactorsTensor, pairs);
  if (!rope.long_factors.empty()) {
    rope.factors = read_factors(file, kShortRopeFactorsTensor, pairs);
    rope.original_context = keys.size("rope.scaling.original_context_length");
  }
  return rope;
}

// Positive numbers alone do not make an angle: of 1e-320 the inverse is infinite.
void check_rope(const ConfigKeys& keys, const RopeConfig& rope) {
  constexpr double kLast = std::numeric_limits<int32_t>::max();
  bool finite = rope.magnitude * temperature_at(rope, kLast) <= std::numeric_limits<float>::max();
  for (size_t i = 0; i < static_cast<size_t>(rope.rotated_dims / 2); ++i) {
    finite = finite && std::isfinite(frequency_of(rope, i, rope.factors) * kLast);
    finite = finite && std::isfinite(frequency_of(rope, i, rope.long_factors) * kLast);
  }
  if (finite) return;
  fail("\"{}\": {} {:g} and the scaling make angles that are not finite", keys.file().path(),
       keys.key("rope.freq_base"), rope.base);
}

std::vector<float> rope_table(const RopeConfig& rope, int32_t context) {
  return make_table(rope, context, [&](size_t /*position*/) { return rope.magnitude; });
}

std::vector<float> query_rope_table(const RopeConfig& rope, int32_t context) {
  return make_table(rope, context, [&](size_t position) {
    return rope.magnitude * temperature_at(rope, static_cast<double>(position));
  });
}

}  // namespace inferno
