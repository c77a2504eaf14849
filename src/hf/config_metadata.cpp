// Metadata that all families have, and the tensors that stand for settings of rope.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/text.h"
#include "hf/families.h"

namespace inferno::hf {
namespace {

constexpr uint32_t kMaxHeadDim = 65536;

void set_rope(const Config& config, MetadataList& metadata) {
  if (const auto base = config.rope_base()) metadata.number("rope.freq_base", *base);
  if (const auto base = config.rope_base("sliding_attention");
      base && (config.rope("sliding_attention").has("rope_theta") || config.has("rope_local_base_freq"))) {
    const bool by_kind = config.has("rope_local_base_freq") || config.sub("rope_parameters").has("sliding_attention");
    if (by_kind) metadata.number("rope.freq_base_swa", *base);
  }
  const std::string type = config.rope_type();
  const Fields rope = config.rope();
  if (type == "linear" || type == "yarn") {
    metadata.set(metadata.own("rope.scaling.type"), type);
    const std::optional<double> factor = rope.find_number("factor");
    if (!factor || !(*factor > 0)) fail("\"{}\": rope of type {} needs a \"factor\" above 0", config.path(), type);
    metadata.number("rope.scaling.factor", *factor);
  }
  if (type == "yarn") {
    const uint32_t original = rope.find_uint("original_max_position_embeddings")
                                  .value_or(config.find_uint("original_max_position_embeddings")
                                                .value_or(config.find_uint("max_position_embeddings").value_or(0)));
    metadata.size("rope.scaling.original_context_length", original);
    if (const auto beta = rope.find_number("beta_fast")) metadata.number("rope.scaling.yarn_beta_fast", *beta);
    if (const auto beta = rope.find_number("beta_slow")) metadata.number("rope.scaling.yarn_beta_slow", *beta);
    return;
  }
  constexpr std::string_view kOthers[] = {"default", "linear", "llama3", "longrope", "su", "mrope", "proportional"};
  if (std::find(std::begin(kOthers), std::end(kOthers), type) == std::end(kOthers)) {
    fail("\"{}\": rope of type \"{}\" is not supported (supported: default, linear, yarn, llama3, longrope)",
         config.path(), printable(type));
  }
}

void set_experts(const Config& config, MetadataList& metadata) {
  const auto count = config.find_uint_of({"num_local_experts", "num_experts", "n_routed_experts"});
  const auto used = config.find_uint_of({"num_experts_per_tok", "num_experts_per_token", "top_k_experts"});
  if (count && *count > 0) metadata.size("expert_count", *count);
  if (count && *count > 0 && used) metadata.size("expert_used_count", *used);
}

// As Llama 3.1 stretches waves that are long compared with its first context.
std::vector<float> llama3_factors(const Config& config) {
  const Fields rope = config.rope();
  const double base = config.rope_base().value_or(10000);
  const double factor = rope.find_number("factor").value_or(8);
  const double low = rope.find_number("low_freq_factor").value_or(1);
  const double high = rope.find_number("high_freq_factor").value_or(4);
  const double context = rope.find_number("original_max_position_embeddings").value_or(8192);
  if (!(base > 0 && factor > 0 && low > 0 && high > low && context > 0))
    fail("\"{}\": the settings of rope of type llama3 must be above 0, and high_freq_factor above low_freq_factor",
         config.path());
  const uint32_t head_dim = config.head_dim();
  std::vector<float> factors;
  for (uint32_t i = 0; i < head_dim / 2; ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(base, 2.0 * i / head_dim);
    const double smooth = (context / wave - low) / (high - low);
    const double between = 1 / ((1 - smooth) / factor + smooth);
    factors.push_back(static_cast<float>(wave < context / high ? 1 : (wave > context / low ? factor : between)));
  }
  return factors;
}

std::vector<float> list_of(const Config& config, std::string_view key) {
  const auto numbers = config.rope().find_numbers(key);
  if (!numbers || numbers->empty()) fail("\"{}\": rope of type longrope needs \"{}\"", config.path(), key);
  return {numbers->begin(), numbers->end()};
}

// A part of the dimensions turns; the others have waves without end.
std::vector<float> proportional_factors(const Config& config, uint32_t head_dim) {
  const auto turning = static_cast<uint32_t>(config.rotary_factor() * head_dim / 2);
  std::vector<float> factors(head_dim / 2, 1e30F);
  std::fill_n(factors.begin(), std::min<size_t>(turning, factors.size()), 1.0F);
  return factors;
}

}  // namespace

void set_model_metadata(const Config& config, const Family& family, MetadataList& metadata) {
  metadata.size("block_count", config.layers());
  metadata.size("context_length", config.get_uint("max_position_embeddings"));
  metadata.size("embedding_length", config.get_uint("hidden_size"));
  metadata.size("feed_forward_length", config.find_uint_of({"intermediate_size", "block_ff_dim"}).value_or(0));
  metadata.size("attention.head_count", config.heads());
  metadata.size("attention.head_count_kv", config.kv_heads());
  set_rope(config, metadata);
  std::optional<double> eps = config.find_number("rms_norm_eps");
  if (!eps) eps = config.find_number("norm_eps");
  if (!eps) eps = config.find_number("layer_norm_epsilon");
  if (eps) {
    metadata.number("attention.layer_norm_rms_epsilon", *eps);
  } else {  // of norms that subtract the mean
    eps = config.find_number("layer_norm_eps");
    if (!eps) config.reject("rms_norm_eps", "a number");
    metadata.number("attention.layer_norm_epsilon", *eps);
  }
  set_experts(config, metadata);
  if (const auto size = config.find_uint("head_dim")) {
    metadata.size("attention.key_length", *size);
    metadata.size("attention.value_length", *size);
  }
  family.set_metadata(config, metadata);
}

RopeTensors make_rope_tensors(const Config& config, const Family& family) {
  RopeTensors tensors;
  const std::string type = config.rope_type();
  if (config.head_dim() > kMaxHeadDim) config.reject("head_dim", "at most 65536");
  if (type == "llama3") tensors.factors = llama3_factors(config);
  if (type == "longrope" || type == "su") {
    tensors.long_factors = list_of(config, "long_factor");
    tensors.short_factors = list_of(config, "short_factor");
  }
  if (type == "proportional") {
    MetadataList metadata{std::string(family.architecture)};
    family.set_metadata(config, metadata);
    for (const MetadataEntry& entry : metadata.take()) {
      if (entry.key != metadata.own("attention.key_length")) continue;
      const uint32_t head_dim = *entry.value.as<uint32_t>();
      if (head_dim > kMaxHeadDim) config.reject("global_head_dim", "at most 65536");
      tensors.factors = proportional_factors(config, head_dim);
    }
  }
  return tensors;
}

}  // namespace inferno::hf
