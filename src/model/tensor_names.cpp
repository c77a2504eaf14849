#include "model/tensor_names.h"

#include <fmt/core.h>

#include "base/text.h"

namespace inferno {
namespace {

constexpr std::string_view kLayerPrefix = "blk.";

}  // namespace

std::string layer_tensor_name(int32_t layer, std::string_view part) {
  return fmt::format("{}{}.{}", kLayerPrefix, layer, part);
}

std::optional<int32_t> layer_of_tensor(std::string_view name) {
  if (!name.starts_with(kLayerPrefix)) return std::nullopt;
  name.remove_prefix(kLayerPrefix.size());
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::optional<int64_t> layer = parse_int(name.substr(0, dot));
  if (!layer || *layer < 0 || *layer >= kMaxLayers) return std::nullopt;
  return static_cast<int32_t>(*layer);
}

}  // namespace inferno
