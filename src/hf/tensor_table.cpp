#include "hf/tensor_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "hf/piece.h"

namespace inferno::hf {
namespace {

constexpr std::string_view kModelPrefixes[] = {
    "model.language_model.", "language_model.model.", "language_model.", "model.", "backbone.", "bert."};
// Of what is not the language model, predicts ahead, or follows the layers of an encoder. Behind the prefixes above,
// too.
constexpr std::string_view kIgnoredPrefixes[] = {
    "visual.",      "vision_tower.",   "vision_model.", "audio_tower.", "multi_modal_projector.",   "embed_vision.",
    "embed_audio.", "vision_encoder.", "patch_merger.", "mtp.",         "vision_language_adapter.", "pooler."};
constexpr std::string_view kIgnoredSuffixes[] = {
    ".rotary_emb.inv_freq", ".input_scale",  ".activation_scale", ".k_scale", ".v_scale", ".q_scale", "_scales",
    ".weight_scale_inv",    ".weight_scale", ".position_ids"};
constexpr std::string_view kLayersPrefixes[] = {"layers.", "encoder.layer."};

// A stored name, taken apart.
struct Name {
  std::string_view rest;          // behind the prefix and the layer
  std::optional<uint32_t> layer;  // empty: outside of layers
};

// A number at the front, which is cut off.
std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

Name parse_name(std::string_view name) {
  for (const std::string_view prefix : kModelPrefixes) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    break;
  }
  Name parsed{name, std::nullopt};
  const auto layers = std::ranges::find_if(kLayersPrefixes, [&](std::string_view p) { return name.starts_with(p); });
  if (layers == std::end(kLayersPrefixes)) return parsed;
  name.remove_prefix(layers->size());
  const std::optional<uint32_t> layer = take_number(name);
  if (!layer || !name.starts_with('.')) return parsed;
  return {name.substr(1), layer};
}

bool is_ignored(const Name& name) {
  return std::ranges::any_of(kIgnoredPrefixes, [&](std::string_view p) { return name.rest.starts_with(p); }) ||
         std::ranges::any_of(kIgnoredSuffixes, [&](std::string_view s) { return name.rest.ends_with(s); });
}

struct Match {
  bool matches = false;
  std::optional<uint32_t> expert;
};

// `*` in the pattern is a number.
Match match(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return {pattern == name, std::nullopt};
  if (!name.starts_with(pattern.substr(0, star))) return {};
  name.remove_prefix(star);
  const std::optional<uint32_t> expert = take_number(name);
  if (!expert || name != pattern.substr(star + 1)) return {};
  return {true, expert};
}

class Table {
 public:
  Table(const Config& config, const Family& family, const Safetensors& stored, const ScaleBlock& block)
      : config_(config),
        family_(family),
        block_(block),
        layers_(config.layers()),
        tied_(config.is_tied()),
        maker_(config, family, stored) {}

  void add(const StoredTensor& tensor) {
    const Name name = parse_name(tensor.name);
    if (is_ignored(name) || (name.layer && *name.layer >= layers_)) return;
    if (tied_ && name.rest == "lm_head.weight") return;
    bool known = false;
    const auto apply = [&](std::span<const NameRule> rules) {
      if (known) return;
      for (const NameRule& rule : rules) {
        const Match found = match(rule.stored, name.rest);
        if (!found.matches) continue;
        known = true;
        add(tensor, name, rule, found.expert);
      }
    };
    if (name.layer) {
      apply(family_.rules);
      apply(common_layer_rules());
    } else {
      apply(family_.model_rules);
      apply(common_model_rules());
    }
    if (!known) {
      fail("\"{}\": tensor \"{}\" is none that inferno knows of {}", config_.path(), printable(tensor.name, 200),
           family_.model_type);
    }
  }

  [[nodiscard]] std::vector<HfTensor> finish() {
    std::vector<HfTensor> tensors;
    for (Building& building : tensors_) {
      tensors.push_back(building.is_stack ? join(building) : std::move(building.tensor));
    }
    add_constants(tensors);
    return tensors;
  }

 private:
  struct Building {
    HfTensor tensor;
    bool is_stack = false;
    std::map<uint32_t, Piece> experts;
  };

  void add(const StoredTensor& source, const Name& name, const NameRule& rule, std::optional<uint32_t> expert) {
    const std::string gguf = name.layer ? fmt::format("blk.{}.{}", *name.layer, rule.gguf) : std::string(rule.gguf);
    HfTensor made = maker_.make(source, rule.change, gguf, block_);
    const auto [at, is_new] = by_name_.emplace(gguf, tensors_.size());
    if (is_new) {
      Building& building = tensors_.emplace_back();
      building.tensor = std::move(made);
      building.is_stack = expert.has_value();
      if (expert) building.experts.emplace(*expert, building.tensor.recipe.pieces.front());
      return;
    }
    Building& building = tensors_[at->second];
    if (!expert || !building.is_stack) {
      fail("\"{}\": several stored tensors would be \"{}\" (\"{}\" is one)", config_.path(), gguf,
           printable(source.name, 200));
    }
    if (made.shape != building.tensor.shape || made.dtype != building.tensor.dtype)
      fail("\"{}\": \"{}\" differs from the other experts in shape or type", config_.path(),
           printable(source.name, 200));
    building.experts.emplace(*expert, made.recipe.pieces.front());
  }

  // Experts 0 to n - 1 become one tensor with one more dimension.
  [[nodiscard]] HfTensor join(Building& building) const {
    HfTensor& tensor = building.tensor;
    tensor.recipe.pieces.clear();
    for (const auto& [number, piece] : building.experts) {
      if (number != tensor.recipe.pieces.size())
        fail("\"{}\": \"{}\" lacks expert {}", config_.path(), tensor.name, tensor.recipe.pieces.size());
      tensor.recipe.pieces.push_back(piece);
    }
    const auto experts = static_cast<int64_t>(building.experts.size());
    if (tensor.shape.rank != 2) fail("\"{}\": the experts of \"{}\" must be matrices", config_.path(), tensor.name);
    tensor.shape = Shape(experts, tensor.shape[0], tensor.shape[1]);
    tensor.bytes *= static_cast<uint64_t>(experts);
    return std::move(tensor);
  }

  void add_constants(std::vector<HfTensor>& tensors) const {
    RopeTensors rope = make_rope_tensors(config_, family_);
    const auto add = [&](const char* name, std::vector<float>& values) {
      if (values.empty()) return;
      HfTensor& tensor = tensors.emplace_back();
      tensor.name = name;
      tensor.type_name = "F32";
      tensor.dtype = DType::f32;
      tensor.shape = Shape(static_cast<int64_t>(values.size()));
      tensor.bytes = values.size() * sizeof(float);
      tensor.recipe.constant = std::move(values);
    };
    add("rope_freqs.weight", rope.factors);
    add("rope_factors_long.weight", rope.long_factors);
    add("rope_factors_short.weight", rope.short_factors);
  }

  const Config& config_;
  const Family& family_;
  const ScaleBlock& block_;
  uint32_t layers_;
  bool tied_;
  PieceMaker maker_;
  std::vector<Building> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;  // positions in tensors_
};

}  // namespace

std::vector<HfTensor> make_tensors(const Config& config, const Family& family, const Safetensors& stored,
                                   const ScaleBlock& block) {
  Table table(config, family, stored, block);
  for (const StoredTensor& tensor : stored.tensors()) table.add(tensor);
  return table.finish();
}

}  // namespace inferno::hf
