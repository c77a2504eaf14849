#include "model/config_keys.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace inferno {
namespace {

// `name` is the key, or the entry of an array under it.
template <typename Integer>
int32_t checked_size(const ModelFile& file, const std::string& name, Integer value, uint64_t most, int32_t least = 1) {
  if (std::cmp_less(value, least) || std::cmp_greater(value, most)) {
    fail("\"{}\": {} is {}, must be {} to {}", file.path(), name, value, least, most);
  }
  return static_cast<int32_t>(value);
}

}  // namespace

void ConfigKeys::fail_missing(std::string_view suffix) const {
  fail("\"{}\" lacks the key {}", file_.path(), key(suffix));
}

int32_t ConfigKeys::size(std::string_view suffix, uint64_t most) const {
  const std::optional<uint64_t> value = file_.find_uint(key(suffix));
  if (!value) fail_missing(suffix);
  return checked_size(file_, key(suffix), *value, most);
}

std::optional<int32_t> ConfigKeys::find_size(std::string_view suffix) const {
  if (file_.find(key(suffix)) == nullptr) return std::nullopt;
  return size(suffix);
}

std::optional<std::vector<int32_t>> ConfigKeys::find_layer_sizes(std::string_view suffix, int32_t layers,
                                                                 int32_t least) const {
  const auto count = static_cast<size_t>(layers);
  const std::string name = key(suffix);
  if (!file_.is_array(name)) {
    const std::optional<int32_t> all = find_size(suffix);
    if (!all) return std::nullopt;
    return std::vector<int32_t>(count, *all);
  }
  const std::vector<int64_t> values = file_.get_ints(name);
  if (values.size() != count) {
    fail("\"{}\": {} has {} entries for {} layers", file_.path(), name, values.size(), layers);
  }
  std::vector<int32_t> sizes;
  for (size_t i = 0; i < count; ++i) {
    sizes.push_back(checked_size(file_, fmt::format("{}[{}]", name, i), values[i], kMaxSize, least));
  }
  return sizes;
}

std::vector<int32_t> ConfigKeys::layer_sizes(std::string_view suffix, int32_t layers) const {
  std::optional<std::vector<int32_t>> sizes = find_layer_sizes(suffix, layers);
  if (!sizes) fail_missing(suffix);
  return std::move(*sizes);
}

double ConfigKeys::positive(std::string_view suffix, std::optional<double> fallback) const {
  const std::optional<double> value = file_.find_float(key(suffix));
  if (!value && !fallback) fail_missing(suffix);
  const double result = value.value_or(fallback.value_or(0));
  if (!(result > 0) || !std::isfinite(result)) {
    fail("\"{}\": {} is {}, must be a positive number", file_.path(), key(suffix), result);
  }
  return result;
}

float ConfigKeys::positive_float(std::string_view suffix, std::optional<double> fallback) const {
  const double value = positive(suffix, fallback);
  using Limits = std::numeric_limits<float>;
  if (value < Limits::min() || value > Limits::max()) {
    fail("\"{}\": {} is {}, must be {} to {}", file_.path(), key(suffix), value, Limits::min(), Limits::max());
  }
  return static_cast<float>(value);
}

}  // namespace inferno
