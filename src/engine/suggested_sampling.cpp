#include "engine/suggested_sampling.h"

#include <limits>

#include "backend/sampling.h"
#include "base/error.h"
#include "base/log.h"

namespace inferno {
namespace {

bool read(const ModelFile& file, std::string_view key, float& value) {
  const std::optional<double> found = file.find_float(key);
  if (found) value = static_cast<float>(*found);
  return found.has_value();
}

bool read(const ModelFile& file, std::string_view key, int32_t& value) {
  const std::optional<int64_t> found = file.find_int(key);
  if (!found) return false;
  if (*found < std::numeric_limits<int32_t>::min() || *found > std::numeric_limits<int32_t>::max()) {
    fail("metadata key \"{}\" is {}", key, *found);
  }
  value = static_cast<int32_t>(*found);
  return true;
}

}  // namespace

std::optional<SamplingSettings> suggested_sampling(const ModelFile& file) {
  SamplingSettings settings;
  settings.temperature = 1;  // what a file that speaks of other settings alone leaves as it is
  try {
    bool any = read(file, "general.sampling.temp", settings.temperature);
    any |= read(file, "general.sampling.top_k", settings.top_k);
    any |= read(file, "general.sampling.top_p", settings.top_p);
    any |= read(file, "general.sampling.min_p", settings.min_p);
    any |= read(file, "general.sampling.penalty_repeat", settings.repeat_penalty);
    any |= read(file, "general.sampling.penalty_last_n", settings.penalty_window);
    if (!any) return std::nullopt;
    check_sampling(settings);
    return settings;
  } catch (const Error& error) {
    log(LogLevel::warn, "the sampling that the model's file suggests is not used: {}", error.what());
    return std::nullopt;
  }
}

}  // namespace inferno
