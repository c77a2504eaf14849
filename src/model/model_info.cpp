#include "model/model_info.h"

#include <algorithm>

#include "inferno/error.h"
#include "model/config.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

std::string text_of(const ModelFile& file, std::string_view key) {
  const MetadataValue* value = file.find(key);
  const std::string* text = value != nullptr ? value->as<std::string>() : nullptr;
  return text != nullptr ? *text : "";
}

void fill_sizes(const ModelConfig& config, ModelInfo& info) {
  info.layers = config.layer_count();
  info.width = config.width;
  info.heads = config.attention_layer().q_heads;
  info.kv_heads = config.attention_layer().kv_heads;
  info.head_dim = config.attention_layer().head_dim;
  for (const LayerConfig& layer : config.layers) {
    if (!layer.is_recurrent()) continue;
    ++info.recurrent_layers;
    const int64_t floats = layer.recurrent.conv_floats() + layer.recurrent.matrix_floats();
    info.state_bytes += static_cast<uint64_t>(floats) * sizeof(float);
  }
  info.ffn = config.ffn();
  for (const LayerConfig& layer : config.layers) {
    if (layer.experts.count == 0) continue;
    info.experts = layer.experts.count;
    info.experts_used = layer.experts.routing.used;
  }
  info.context = config.context;
  info.vocabulary = config.vocabulary;
}

// Elements that a token is computed with: of experts the share of those it has.
uint64_t active_elements(const FileTensor& tensor, const ModelConfig& config) {
  const auto elements = static_cast<uint64_t>(tensor.shape.elements());
  const int32_t layer = layer_of_tensor(tensor.name).value_or(kNoLayer);
  if (layer < 0) return elements;
  if (layer >= config.layer_count()) return 0;  // it predicts ahead and does not run
  const ExpertsConfig& experts = config.layers[static_cast<size_t>(layer)].experts;
  if (experts.count == 0 || tensor.name.find("_exps.") == std::string::npos) return elements;
  return elements / static_cast<uint64_t>(experts.count) * static_cast<uint64_t>(experts.routing.used);
}

void add_tensor(const FileTensor& tensor, ModelInfo& info) {
  TensorInfo& added = info.tensors.emplace_back();
  added.name = tensor.name;
  added.type = tensor.type_name;
  for (int i = 0; i < tensor.shape.rank; ++i) added.shape.push_back(tensor.shape[i]);
  added.bytes = tensor.bytes;
  added.computable = tensor.dtype.has_value();
  count_tensor(added.type, added.bytes, info.types);
}

MetadataItem item_of(const std::string& value) {
  return value;
}
MetadataItem item_of(std::string_view value) {
  return std::string(value);
}
MetadataItem item_of(bool value) {
  return value;
}
MetadataItem item_of(const MetadataArray& value) {
  return value_to_string(MetadataValue(value));
}
template <typename Number>
MetadataItem item_of(Number value) {
  if constexpr (std::is_floating_point_v<Number>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_signed_v<Number>) {
    return static_cast<int64_t>(value);
  } else {
    return static_cast<uint64_t>(value);
  }
}

MetadataInfo info_of(const MetadataEntry& entry) {
  MetadataInfo info{.key = entry.key, .type = entry.value.type_text(), .value = value_to_string(entry.value)};
  std::visit(
      [&](const auto& data) {
        if constexpr (std::is_same_v<std::decay_t<decltype(data)>, MetadataArray>) {
          info.length = data.size();
          std::visit(
              [&](const auto& list) {
                for (size_t i = 0; i < std::min<size_t>(list.size(), kMaxMetadataItems); ++i) {
                  info.items.push_back(item_of(list[i]));
                }
              },
              data.items);
        } else {
          info.items.push_back(item_of(data));
        }
      },
      entry.value.data());
  return info;
}

}  // namespace

void count_tensor(std::string_view type, uint64_t bytes, std::vector<TensorTypeTotal>& totals) {
  auto total = std::ranges::find(totals, type, &TensorTypeTotal::type);
  if (total == totals.end()) total = totals.insert(totals.end(), TensorTypeTotal{.type = std::string(type)});
  total->tensors += 1;
  total->bytes += bytes;
  for (; total != totals.begin() && std::prev(total)->bytes < total->bytes; --total) std::iter_swap(total, total - 1);
}

ModelInfo inspect_model(const ModelFile& file) {
  ModelInfo info;
  info.path = file.path();
  info.file_bytes = file.file_bytes();
  info.architecture = text_of(file, "general.architecture");
  info.name = text_of(file, "general.name");
  try {
    const ModelConfig config = read_config(file);
    fill_sizes(config, info);
    for (size_t i = 0; i < file.tensor_count(); ++i) info.active_parameters += active_elements(file.tensor(i), config);
  } catch (const Error& error) {
    info.unsupported = error.what();
  }
  for (const MetadataEntry& entry : file.metadata()) {
    info.metadata.push_back(info_of(entry));
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < file.tensor_count(); ++i) {
    const FileTensor& tensor = file.tensor(i);
    add_tensor(tensor, info);
    info.parameters += static_cast<uint64_t>(tensor.shape.elements());
    bytes += tensor.bytes;
  }
  if (info.parameters > 0)
    info.bits_per_weight = 8.0 * static_cast<double>(bytes) / static_cast<double>(info.parameters);
  return info;
}

}  // namespace inferno
