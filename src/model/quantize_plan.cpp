#include "model/quantize_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "model/tensor_names.h"
#include "model/weight_types.h"

namespace inferno {
namespace {

DType parse_type(std::string_view name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype || *dtype == DType::i32) {
    fail_usage("\"{}\" is not a type of tensors (known: {})", printable(name), weight_dtype_names());
  }
  return *dtype;
}

// The types that the user names for some tensors.
class Overrides {
 public:
  explicit Overrides(const QuantizeOptions& options) {
    if (!options.output_type.empty()) head_ = parse_type(options.output_type);
    for (const auto& [pattern, type] : options.tensor_types) {
      try {
        patterns_.emplace_back(std::regex(pattern), parse_type(type));
      } catch (const std::regex_error&) {
        fail_usage("\"{}\" is not a regular expression for names of tensors", printable(pattern));
      }
    }
  }

  [[nodiscard]] std::optional<DType> find(const std::string& name, bool tied) const {
    // Matching recurses; no format has names near this length.
    constexpr size_t kMaxName = 256;
    if (name.size() <= kMaxName) {
      for (const auto& [pattern, dtype] : patterns_) {
        if (std::regex_search(name, pattern)) return dtype;
      }
    }
    if (name == kHeadTensor || (tied && name == kEmbeddingTensor)) return head_;
    return std::nullopt;
  }

 private:
  std::vector<std::pair<std::regex, DType>> patterns_;
  std::optional<DType> head_;
};

// Query heads that read the same values; 1 where the file does not say, or says something strange.
int32_t queries_per_value(const ModelFile& input) {
  const auto heads = [&](const char* key) -> int64_t {
    const std::string* architecture = input.find_string("general.architecture");
    if (architecture == nullptr) return 0;
    const std::string name = fmt::format("{}.attention.{}", *architecture, key);
    if (!input.is_array(name))
      return static_cast<int64_t>(std::min<uint64_t>(input.find_uint(name).value_or(0), 1U << 20));
    const std::optional<std::vector<int64_t>> list = input.find_ints(name);
    return !list || list->empty() ? 0 : list->front();
  };
  const int64_t queries = heads("head_count");
  const int64_t values = heads("head_count_kv");
  if (queries < 1 || queries > 1 << 20 || values < 1) return 1;
  return static_cast<int32_t>(queries / std::min(values, queries));
}

MixInput mix_input(const ModelFile& input, const QuantizeOptions& options) {
  MixInput mix{.tied = input.find_tensor(kHeadTensor) == nullptr,
               .queries_per_value = queries_per_value(input),
               .has_importance = !options.imatrix.empty(),
               .pure = options.pure};
  for (size_t i = 0; i < input.tensor_count(); ++i)
    mix.layers = std::max(mix.layers, layer_of_tensor(input.tensor(i).name).value_or(-1) + 1);
  return mix;
}

struct Fallback {
  size_t tensors = 0;
  const FileTensor* first = nullptr;
};

}  // namespace

QuantizePlan plan_quantize(const ModelFile& input, std::string_view type, const QuantizeOptions& options) {
  const Overrides overrides(options);
  const MixInput mix = mix_input(input, options);
  QuantizePlan plan;
  std::map<std::pair<DType, DType>, Fallback> fallbacks;  // (wanted, taken)
  for (size_t i = 0; i < input.tensor_count(); ++i) {
    const FileTensor& tensor = input.tensor(i);
    if (!tensor.dtype) {
      fail("\"{}\": tensor {} is stored as {}, which inferno cannot read (supported: {})", input.path(), tensor.name,
           tensor.type_name, weight_dtype_names());
    }
    DType dtype = *tensor.dtype;
    if (dtype != DType::i32 && is_quantizable(tensor.name, tensor.shape)) {
      const std::optional<DType> named = overrides.find(tensor.name, mix.tied);
      const WeightType chosen =
          named ? fit_weight_type(*named, tensor.shape) : choose_weight_type(type, tensor.name, tensor.shape, mix);
      if (chosen.dtype != chosen.wanted) {
        Fallback& fallback = fallbacks[{chosen.wanted, chosen.dtype}];
        if (fallback.tensors++ == 0) fallback.first = &tensor;
      }
      plan.from_quantized = plan.from_quantized || (is_quantized(dtype) && dtype != chosen.dtype);
      dtype = chosen.dtype;
    }
    plan.tensors.push_back({&tensor, dtype});
  }
  for (const auto& [types, fallback] : fallbacks) {
    plan.fallbacks.push_back(fmt::format("{} instead of {} in {} tensor{}, whose rows do not divide by {} ({}: {})",
                                         dtype_name(types.second), dtype_name(types.first), fallback.tensors,
                                         fallback.tensors == 1 ? "" : "s", dtype_info(types.first).block_size,
                                         fallback.first->name, fallback.first->shape.cols()));
  }
  return plan;
}

}  // namespace inferno
