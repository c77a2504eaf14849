#include "model/weight_types.h"

#include <fmt/core.h>

#include <cctype>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

struct Recipe {
  std::string_view name;
  DType base;
  std::optional<DType> better;  // a mix: for the tensors that suffer most
  uint32_t file_type;           // general.file_type, as other programs number it
};

constexpr Recipe kRecipes[] = {
#define FORMAT(name, Name, ...) {#Name, DType::name, {}, WeightFormat{__VA_ARGS__}.file_type},
#include "tensor/weight_formats.inc"
    {"Q4_K_M", DType::q4_k, DType::q6_k, 15},
    {"Q5_K_M", DType::q5_k, DType::q6_k, 17},
};

const Recipe& find_recipe(std::string_view name) {
  std::string upper;
  for (const char c : trim(name)) upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == upper) return recipe;
  }
  fail_usage("\"{}\" is not a type to quantize to (known: {})", printable(name), weight_type_names());
}

// The mixes spend their better type on the output head, and on values and down projections of the first and last
// eighth of the layers and every third between: there errors cost most.
DType choose(const Recipe& recipe, std::string_view name, bool tied, int32_t layers) {
  if (!recipe.better) return recipe.base;
  if (name == kHeadTensor || (tied && name == kEmbeddingTensor)) return *recipe.better;
  const std::optional<int32_t> layer = layer_of_tensor(name);
  if (!layer || !(name.ends_with("attn_v.weight") || name.ends_with("ffn_down.weight"))) return recipe.base;
  const int32_t eighth = layers / 8;
  const bool more = *layer < eighth || *layer >= 7 * layers / 8 || (*layer - eighth) % 3 == 2;
  return more ? *recipe.better : recipe.base;
}

// What takes the place of a type whose blocks do not fit the row.
DType fallback(DType wanted, int64_t cols) {
  const auto fits = [&](DType type) { return cols % dtype_info(type).block_size == 0; };
  if (fits(wanted)) return wanted;
  const DType next = weight_format(wanted).fallback;
  return fits(next) ? next : DType::f16;
}

}  // namespace

std::string weight_type_names() {
  std::string names;
  for (const Recipe& recipe : kRecipes) names += fmt::format("{}{}", names.empty() ? "" : ", ", recipe.name);
  return names;
}

WeightType choose_weight_type(std::string_view type, std::string_view tensor, const Shape& shape, bool tied,
                              int32_t layers) {
  const DType wanted = choose(find_recipe(type), tensor, tied, layers);
  return {fallback(wanted, shape.cols()), wanted};
}

std::string_view weight_type_name(std::string_view type) {
  return find_recipe(type).name;
}

uint32_t gguf_file_type(std::string_view type) {
  return find_recipe(type).file_type;
}

std::string_view file_type_name(uint64_t file_type) {
  for (const Recipe& recipe : kRecipes) {
    if (recipe.file_type == file_type) return recipe.name;
  }
  return {};
}

}  // namespace inferno
