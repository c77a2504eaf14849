#include "model/weight_types.h"

#include <fmt/core.h>

#include <cctype>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

// What a matrix does in the model, as far as mixes care.
enum class Role : uint8_t {
  head,    // also the embedding that serves as one
  values,  // projects to the values, alone or together with queries and keys
  mixed,   // the output of attention
  down,    // out of the MLP
  other,
};

// The layers a rule is about; n is their number.
enum class Where : uint8_t {
  all,
  first_2,
  first_4,
  first_sixteenth,
  first_eighth,
  ends_and_thirds,  // the first and last eighth, and every third between
  shared_values,    // all, where at least 4 query heads read the same values
};

enum class Importance : uint8_t { any, with, without };

// The first rule that applies decides; without one the mix's main type stays.
struct Rule {
  Role role;
  Where where;
  DType dtype;
  Importance importance = Importance::any;
};

constexpr Rule kQ2[] = {{Role::values, Where::shared_values, DType::q4_k},
                        {Role::values, Where::all, DType::q3_k},
                        {Role::down, Where::all, DType::q3_k},
                        {Role::mixed, Where::all, DType::q3_k}};
constexpr Rule kQ3M[] = {{Role::values, Where::first_2, DType::q5_k},
                         {Role::values, Where::all, DType::q4_k},
                         {Role::down, Where::first_sixteenth, DType::q5_k},
                         {Role::down, Where::all, DType::q4_k},
                         {Role::mixed, Where::all, DType::q4_k}};
constexpr Rule kQ3L[] = {{Role::values, Where::all, DType::q5_k},
                         {Role::down, Where::all, DType::q5_k},
                         {Role::mixed, Where::all, DType::q5_k}};
constexpr Rule kQ4S[] = {{Role::values, Where::first_4, DType::q5_k}, {Role::down, Where::first_eighth, DType::q5_k}};
constexpr Rule kMedium[] = {{Role::values, Where::ends_and_thirds, DType::q6_k},
                            {Role::down, Where::ends_and_thirds, DType::q6_k}};
constexpr Rule kCodebook[] = {{Role::values, Where::shared_values, DType::q5_k},
                              {Role::down, Where::first_eighth, DType::q5_k, Importance::without}};
// With importance, a scale without an offset serves the first down projections badly.
constexpr Rule kQ40[] = {{Role::down, Where::first_eighth, DType::q4_1, Importance::with}};
constexpr Rule kQ50[] = {{Role::down, Where::first_eighth, DType::q5_1, Importance::with}};

struct Recipe {
  std::string_view name;
  DType base;
  uint32_t file_type;              // general.file_type, as other programs number it
  std::optional<DType> head = {};  // the base when empty
  std::span<const Rule> rules = {};
  std::string_view alias = {};
};

constexpr uint32_t own(DType dtype) {
  return weight_format(dtype).file_type;
}

constexpr DType kBestHead = DType::q6_k;
constexpr Recipe kRecipes[] = {
    {"F32", DType::f32, own(DType::f32)},
    {"F16", DType::f16, own(DType::f16)},
    {"BF16", DType::bf16, own(DType::bf16)},
    {"Q8_0", DType::q8_0, own(DType::q8_0)},
    {"Q4_0", DType::q4_0, own(DType::q4_0), kBestHead, kQ40},
    {"Q4_1", DType::q4_1, own(DType::q4_1), kBestHead},
    {"Q5_0", DType::q5_0, own(DType::q5_0), kBestHead, kQ50},
    {"Q5_1", DType::q5_1, own(DType::q5_1), kBestHead},
    {"Q2_K", DType::q2_k, own(DType::q2_k), kBestHead, kQ2},
    {"Q3_K_S", DType::q3_k, 11, kBestHead},
    {"Q3_K_M", DType::q3_k, 12, kBestHead, kQ3M, "Q3_K"},
    {"Q3_K_L", DType::q3_k, 13, kBestHead, kQ3L},
    {"Q4_K_S", DType::q4_k, 14, kBestHead, kQ4S},
    {"Q4_K_M", DType::q4_k, 15, kBestHead, kMedium, "Q4_K"},
    {"Q5_K_S", DType::q5_k, 16, kBestHead},
    {"Q5_K_M", DType::q5_k, 17, kBestHead, kMedium, "Q5_K"},
    {"Q6_K", DType::q6_k, own(DType::q6_k), kBestHead},
    {"IQ4_NL", DType::iq4_nl, own(DType::iq4_nl), kBestHead, kCodebook},
    {"IQ4_XS", DType::iq4_xs, own(DType::iq4_xs), kBestHead, kCodebook},
    {"MXFP4", DType::mxfp4, own(DType::mxfp4), DType::q8_0},
};

// Every format has a name of its own to quantize to.
constexpr bool has_recipe(DType dtype) {
  for (const Recipe& recipe : kRecipes) {
    if (recipe.base == dtype) return true;
  }
  return false;
}
#define FORMAT(name, ...) static_assert(has_recipe(DType::name));
#include "tensor/weight_formats.inc"

const Recipe& find_recipe(std::string_view name) {
  std::string upper;
  for (const char c : trim(name)) upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == upper || (!recipe.alias.empty() && recipe.alias == upper)) return recipe;
  }
  fail_usage("\"{}\" is not a type to quantize to (known: {})", printable(name), weight_type_names());
}

Role role_of(std::string_view name, bool tied) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (name == kHeadTensor || (tied && name == kEmbeddingTensor)) return Role::head;
  if (has("attn_qkv.weight") || has("attn_kv_b.weight") || has("attn_v.weight")) return Role::values;
  if (has("attn_output.weight")) return Role::mixed;
  if (has("ffn_down")) return Role::down;
  return Role::other;
}

bool applies(const Rule& rule, Role role, int32_t layer, const MixInput& model) {
  if (rule.role != role) return false;
  if (rule.importance != Importance::any && (rule.importance == Importance::with) != model.has_importance) return false;
  const int32_t n = model.layers;
  switch (rule.where) {
    case Where::all:
      return true;
    case Where::first_2:
      return layer < 2;
    case Where::first_4:
      return layer < 4;
    case Where::first_sixteenth:
      return layer < n / 16;
    case Where::first_eighth:
      return layer < n / 8;
    case Where::ends_and_thirds:
      return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    case Where::shared_values:
      return model.queries_per_value >= 4;
  }
  return false;
}

// Models of this depth that share values are so large that a few more bits for them cost next to nothing.
constexpr int32_t kDeepLayers = 80;

DType choose(const Recipe& recipe, std::string_view name, const Shape& shape, const MixInput& model) {
  if (model.pure || !is_quantized(recipe.base)) return recipe.base;
  const Role role = role_of(name, model.tied);
  if (role == Role::head) {
    const bool fits = shape.cols() % dtype_info(recipe.base).block_size == 0;
    return fits ? recipe.head.value_or(recipe.base) : DType::q8_0;
  }
  DType chosen = recipe.base;
  const std::optional<int32_t> layer = layer_of_tensor(name);
  if (!layer || *layer >= model.layers) return chosen;
  for (const Rule& rule : recipe.rules) {
    if (!applies(rule, role, *layer, model)) continue;
    chosen = rule.dtype;
    break;
  }
  const bool deep = model.layers == kDeepLayers && model.queries_per_value > 1;
  if (role == Role::values && deep && (chosen == DType::q3_k || chosen == DType::q4_k)) chosen = DType::q5_k;
  return chosen;
}

}  // namespace

std::string weight_type_names() {
  std::string names;
  for (const Recipe& recipe : kRecipes) names += fmt::format("{}{}", names.empty() ? "" : ", ", recipe.name);
  return names;
}

WeightType fit_weight_type(DType wanted, const Shape& shape) {
  const auto fits = [&](DType type) { return shape.cols() % dtype_info(type).block_size == 0; };
  if (fits(wanted)) return {wanted, wanted};
  // What is asked for in 2 or 3 bits takes 4, not the format nearest in quality: a file should stay small.
  const bool few_bits = wanted == DType::q2_k || wanted == DType::q3_k;
  const DType next = few_bits ? DType::q4_0 : weight_format(wanted).fallback;
  return {fits(next) ? next : DType::f16, wanted};
}

WeightType choose_weight_type(std::string_view type, std::string_view tensor, const Shape& shape,
                              const MixInput& model) {
  return fit_weight_type(choose(find_recipe(type), tensor, shape, model), shape);
}

bool is_quantizable(std::string_view tensor, const Shape& shape) {
  if (shape.rank < 2 || !tensor.ends_with("weight")) return false;
  if (shape.rank == 2 && shape[0] == 1) return false;  // a vector
  // Small, and worth every bit.
  constexpr std::string_view kKept[] = {"_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d", "shortconv.conv.weight",
                                        "attn_rel_b.weight"};
  for (const std::string_view part : kKept) {
    if (tensor.find(part) != std::string_view::npos) return false;
  }
  return true;
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
