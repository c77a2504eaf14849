#include "hf/families.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "hf/family_tables.h"

namespace inferno::hf {
namespace {

constexpr NameRule kModelRules[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight", Change::plus_one},
    {"lm_head.weight", "output.weight"},
};

constexpr NameRule kLayerRules[] = {
    {"input_layernorm.weight", "attn_norm.weight", Change::plus_one},
    {"post_attention_layernorm.weight", "ffn_norm.weight", Change::plus_one},
    {"self_attn.q_proj.weight", "attn_q.weight", Change::rope_q},
    {"self_attn.q_proj.bias", "attn_q.bias", Change::rope_q},
    {"self_attn.k_proj.weight", "attn_k.weight", Change::rope_k},
    {"self_attn.k_proj.bias", "attn_k.bias", Change::rope_k},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.o_proj.bias", "attn_output.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", Change::plus_one},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", Change::plus_one},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.experts.*.gate_proj.weight", "ffn_gate_exps.weight"},
    {"mlp.experts.*.up_proj.weight", "ffn_up_exps.weight"},
    {"mlp.experts.*.down_proj.weight", "ffn_down_exps.weight"},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", Change::first_half},
    {"mlp.experts.gate_up_proj", "ffn_up_exps.weight", Change::second_half},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
};

constexpr NameRule kMixtral[] = {
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight"},
    {"block_sparse_moe.experts.*.w1.weight", "ffn_gate_exps.weight"},
    {"block_sparse_moe.experts.*.w2.weight", "ffn_down_exps.weight"},
    {"block_sparse_moe.experts.*.w3.weight", "ffn_up_exps.weight"},
};

constexpr NameRule kGemma[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight", Change::plus_one},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", Change::plus_one},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", Change::plus_one},
    {"layer_scalar", "layer_output_scale.weight"},
    {"per_layer_input_gate.weight", "inp_gate.weight"},
    {"per_layer_projection.weight", "proj.weight"},
    {"post_per_layer_input_norm.weight", "post_norm.weight"},
    {"router.proj.weight", "ffn_gate_inp.weight"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"},
    {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
    {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
    {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"},
};

constexpr NameRule kGemma4Model[] = {
    {"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
};

constexpr NameRule kPostNorms[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight", Change::plus_one},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", Change::plus_one},
};

constexpr NameRule kPhi3[] = {
    {"self_attn.qkv_proj.weight", "attn_qkv.weight"},
    {"mlp.gate_up_proj.weight", "ffn_up.weight"},
};

constexpr NameRule kGptOss[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.router.weight", "ffn_gate_inp.weight"},
    {"mlp.router.bias", "ffn_gate_inp.bias"},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", Change::transposed_even},
    {"mlp.experts.gate_up_proj", "ffn_up_exps.weight", Change::transposed_odd},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", Change::transposed},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", Change::even_columns},
    {"mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", Change::odd_columns},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
    {"mlp.experts.gate_up_proj_blocks", "ffn_gate_exps.weight", Change::mxfp4_even},
    {"mlp.experts.gate_up_proj_blocks", "ffn_up_exps.weight", Change::mxfp4_odd},
    {"mlp.experts.down_proj_blocks", "ffn_down_exps.weight", Change::mxfp4},
};

constexpr NameRule kQwen35[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight", Change::plus_one},
    {"linear_attn.A_log", "ssm_a", Change::minus_exp_v_heads},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", Change::v_heads_after_qk},
    {"linear_attn.dt_bias", "ssm_dt.bias", Change::v_heads},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", Change::v_heads},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight", Change::v_heads},
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", Change::v_heads_after_qk},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", Change::v_heads},
    {"linear_attn.norm.weight", "ssm_norm.weight"},
    {"linear_attn.out_proj.weight", "ssm_out.weight", Change::v_columns},
};

constexpr NameRule kQwen3Next[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight", Change::plus_one},
    {"linear_attn.A_log", "ssm_a", Change::minus_exp},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
    {"linear_attn.in_proj_ba.weight", "ssm_ba.weight"},
    {"linear_attn.in_proj_qkvz.weight", "attn_qkv.weight", Change::grouped_qkv},
    {"linear_attn.in_proj_qkvz.weight", "attn_gate.weight", Change::grouped_z},
    {"linear_attn.norm.weight", "ssm_norm.weight"},
    {"linear_attn.out_proj.weight", "ssm_out.weight"},
};

void set_nothing(const Config& /*config*/, MetadataList& /*metadata*/) {}

void set_llama(const Config& config, MetadataList& metadata) {
  metadata.size("vocab_size", config.get_uint("vocab_size"));
  metadata.size("rope.dimension_count", config.head_dim());
}

void set_ministral3(const Config& config, MetadataList& metadata) {
  set_llama(config, metadata);
  const Fields rope = config.rope();
  if (const auto value = rope.find_number("mscale_all_dim"))
    metadata.number("rope.scaling.yarn_log_multiplier", *value);
  if (const auto value = rope.find_number("llama_4_scaling_beta"))
    metadata.number("attention.temperature_scale", *value);
}

// Experts whose weights are not brought to a sum of 1 are none that the architecture has.
void require_renormalized(const Config& config) {
  if (!config.find_bool("norm_topk_prob").value_or(true)) config.reject("norm_topk_prob", "true");
}

void set_qwen3_moe(const Config& config, MetadataList& metadata) {
  require_renormalized(config);
  metadata.size("expert_feed_forward_length", config.get_uint("moe_intermediate_size"));
}

void set_window(const Config& config, MetadataList& metadata) {
  if (const auto window = config.find_uint("sliding_window")) metadata.size("attention.sliding_window", *window);
}

void set_softcaps(const Config& config, MetadataList& metadata) {
  for (const std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (const auto value = config.find_number(key)) metadata.number(key, *value);
  }
}

// The pattern of windows, where it is not every `period`th layer that has none.
void set_window_pattern(const Config& config, size_t period, MetadataList& metadata) {
  const std::optional<std::vector<bool>> windows = config.layers_of_type("sliding_attention");
  if (!windows) {
    const auto stated = config.find_uint_of({"sliding_window_pattern", "_sliding_window_pattern"});
    if (stated && *stated != period) metadata.size("attention.sliding_window_pattern", *stated);
    return;
  }
  for (size_t i = 0; i < windows->size(); ++i) {
    if (period != 0 && (*windows)[i] == ((i + 1) % period != 0)) continue;
    metadata.flags("attention.sliding_window_pattern", *windows);
    return;
  }
}

void set_gemma2(const Config& config, MetadataList& metadata) {
  set_softcaps(config, metadata);
  set_window(config, metadata);
  set_window_pattern(config, 2, metadata);
}

void set_gemma3(const Config& config, MetadataList& metadata) {
  set_softcaps(config, metadata);
  set_window(config, metadata);
  set_window_pattern(config, 6, metadata);
}

// A setting of layers without a window, in both forms of the file.
std::optional<uint32_t> full_layer_setting(const Config& config, const std::vector<bool>& windows,
                                           std::string_view global_key, std::string_view key) {
  if (const auto size = config.find_uint(global_key)) return size;
  const auto full = std::find(windows.begin(), windows.end(), false);
  const Fields layers = config.sub("per_layer_config");
  const std::string index = std::to_string(full - windows.begin());
  if (full == windows.end() || !layers.has(index)) return std::nullopt;
  return layers.sub(index).find_uint(key);
}

// Layers without keys and values of their own may have an MLP of twice the size.
void set_gemma4_mlp(const Config& config, MetadataList& metadata) {
  if (const auto size = config.find_uint_of({"moe_intermediate_size", "expert_intermediate_size"}))
    metadata.size("expert_feed_forward_length", *size);
  if (!config.find_bool("use_double_wide_mlp").value_or(false)) return;
  const uint32_t size = config.get_uint("intermediate_size");
  if (size > INT32_MAX / 2) config.reject("intermediate_size", "less than 2^30");
  const uint32_t shared = std::min(config.find_uint("num_kv_shared_layers").value_or(0), config.layers());
  std::vector<int32_t> sizes(config.layers() - shared, static_cast<int32_t>(size));
  sizes.resize(config.layers(), static_cast<int32_t>(2 * size));
  metadata.set(metadata.own("feed_forward_length"), MetadataArray{std::move(sizes)});
}

void set_gemma4(const Config& config, MetadataList& metadata) {
  set_softcaps(config, metadata);
  set_window(config, metadata);
  const std::vector<bool> windows = config.layers_of_type("sliding_attention").value_or(std::vector<bool>());
  if (windows.empty()) config.reject("layer_types", "a list of the layers' kinds");
  const uint32_t head_dim =
      full_layer_setting(config, windows, "global_head_dim", "head_dim").value_or(config.head_dim());
  metadata.size("attention.shared_kv_layers", config.find_uint("num_kv_shared_layers").value_or(0));
  metadata.size("embedding_length_per_layer_input", config.find_uint("hidden_size_per_layer_input").value_or(0));
  metadata.flags("attention.sliding_window_pattern", windows);
  metadata.size("attention.key_length", head_dim);
  metadata.size("attention.value_length", head_dim);
  metadata.size("attention.key_length_swa", config.head_dim());
  metadata.size("attention.value_length_swa", config.head_dim());
  metadata.size("rope.dimension_count", head_dim);
  metadata.size("rope.dimension_count_swa", config.head_dim());
  set_gemma4_mlp(config, metadata);
  const auto kv_heads = full_layer_setting(config, windows, "num_global_key_value_heads", "num_key_value_heads");
  if (!kv_heads) return;
  std::vector<int32_t> counts;
  for (const bool window : windows)
    counts.push_back(static_cast<int32_t>(std::min<uint32_t>(window ? config.kv_heads() : *kv_heads, INT32_MAX)));
  metadata.set(metadata.own("attention.head_count_kv"), MetadataArray{std::move(counts)});
}

void set_olmo2(const Config& config, MetadataList& metadata) {
  set_window(config, metadata);
  if (const auto windows = config.layers_of_type("sliding_attention"))
    metadata.flags("attention.sliding_window_pattern", *windows);
}

void set_gpt_oss(const Config& config, MetadataList& metadata) {
  set_window(config, metadata);
  metadata.size("expert_feed_forward_length", config.get_uint("intermediate_size"));
}

void set_phi3(const Config& config, MetadataList& metadata) {
  const double rotated = config.rotary_factor() * config.head_dim();
  metadata.size("rope.dimension_count", static_cast<uint32_t>(rotated));
  metadata.size("attention.sliding_window", config.find_uint("sliding_window").value_or(0));
  const uint32_t context = config.get_uint("max_position_embeddings");
  const uint32_t original = config.find_uint("original_max_position_embeddings").value_or(context);
  metadata.size("rope.scaling.original_context_length", original);
  if (config.rope_type() != "longrope" && config.rope_type() != "su") return;
  const double ratio = static_cast<double>(context) / original;
  metadata.number("rope.scaling.attn_factor", ratio <= 1 ? 1 : std::sqrt(1 + std::log(ratio) / std::log(original)));
}

void set_delta_net(const Config& config, MetadataList& metadata) {
  const uint32_t v_heads = config.get_uint("linear_num_value_heads");
  const uint32_t v_dim = config.get_uint("linear_value_head_dim");
  metadata.size("ssm.conv_kernel", config.get_uint("linear_conv_kernel_dim"));
  metadata.size("ssm.state_size", config.get_uint("linear_key_head_dim"));
  metadata.size("ssm.group_count", config.get_uint("linear_num_key_heads"));
  metadata.size("ssm.time_step_rank", v_heads);
  metadata.size("ssm.inner_size", v_heads * v_dim);
  metadata.size("rope.dimension_count", static_cast<uint32_t>(config.rotary_factor() * config.head_dim()));
  uint32_t interval = config.find_uint("full_attention_interval").value_or(4);
  if (const auto recurrent = config.layers_of_type("linear_attention")) {
    const auto first = std::find(recurrent->begin(), recurrent->end(), false);
    interval = static_cast<uint32_t>(first - recurrent->begin()) + 1;
    for (size_t i = 0; i < recurrent->size(); ++i) {
      if ((*recurrent)[i] != ((i + 1) % interval != 0)) metadata.flags("attention.recurrent_layers", *recurrent);
    }
  }
  metadata.size("full_attention_interval", interval);
  if (const auto sections = config.rope().find_numbers("mrope_section")) {
    std::vector<int32_t> four(4);
    for (size_t i = 0; i < four.size() && i < sections->size(); ++i)
      four[i] = static_cast<int32_t>(std::clamp((*sections)[i], 0.0, 65536.0));
    metadata.set(metadata.own("rope.dimension_sections"), MetadataArray{std::move(four)});
  }
}

void set_delta_net_moe(const Config& config, MetadataList& metadata) {
  set_delta_net(config, metadata);
  set_qwen3_moe(config, metadata);
  metadata.size("expert_shared_feed_forward_length", config.get_uint("shared_expert_intermediate_size"));
}

constexpr Family kFamilies[] = {
    {.model_type = "qwen3", .architecture = "qwen3", .rules = {}, .set_metadata = set_nothing},
    {.model_type = "qwen2", .architecture = "qwen2", .rules = {}, .set_metadata = set_nothing},
    {.model_type = "llama", .architecture = "llama", .rules = {}, .rope_pairs = true, .set_metadata = set_llama},
    {.model_type = "mistral", .architecture = "llama", .rules = {}, .rope_pairs = true, .set_metadata = set_llama},
    {.model_type = "mixtral",
     .architecture = "llama",
     .rules = kMixtral,
     .rope_pairs = true,
     .set_metadata = set_llama},
    {.model_type = "ministral3",
     .architecture = "mistral3",
     .rules = {},
     .rope_pairs = true,
     .set_metadata = set_ministral3},
    {.model_type = "smollm3", .architecture = "smollm3", .rules = {}, .rope_pairs = true, .set_metadata = set_llama},
    {.model_type = "granite", .architecture = "granite", .rules = {}, .rope_pairs = true, .set_metadata = set_granite},
    {.model_type = "olmo2", .architecture = "olmo2", .rules = kPostNorms, .set_metadata = set_olmo2},
    {.model_type = "olmo3", .architecture = "olmo2", .rules = kPostNorms, .set_metadata = set_olmo2},
    {.model_type = "seed_oss", .architecture = "seed_oss", .rules = kPostNorms, .set_metadata = set_nothing},
    {.model_type = "phi3", .architecture = "phi3", .rules = kPhi3, .set_metadata = set_phi3},
    {.model_type = "gemma2", .architecture = "gemma2", .rules = kGemma, .plus_one = true, .set_metadata = set_gemma2},
    {.model_type = "gemma3", .architecture = "gemma3", .rules = kGemma, .plus_one = true, .set_metadata = set_gemma3},
    {.model_type = "gemma4",
     .architecture = "gemma4",
     .rules = kGemma,
     .model_rules = kGemma4Model,
     .set_metadata = set_gemma4},
    {.model_type = "qwen3_moe", .architecture = "qwen3moe", .rules = {}, .set_metadata = set_qwen3_moe},
    {.model_type = "gpt_oss", .architecture = "gpt-oss", .rules = kGptOss, .set_metadata = set_gpt_oss},
    {.model_type = "qwen3_5",
     .architecture = "qwen35",
     .rules = kQwen35,
     .plus_one = true,
     .set_metadata = set_delta_net},
    {.model_type = "qwen3_5_moe",
     .architecture = "qwen35moe",
     .rules = kQwen35,
     .plus_one = true,
     .set_metadata = set_delta_net_moe},
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .rules = kQwen3Next,
     .plus_one = true,
     .set_metadata = set_delta_net_moe},
};

}  // namespace

void set_granite(const Config& config, MetadataList& metadata) {
  set_llama(config, metadata);
  const auto copy = [&](std::string_view key, std::string_view from) {
    if (const std::optional<double> value = config.find_number(from)) metadata.number(key, *value);
  };
  copy("attention.scale", "attention_multiplier");
  copy("embedding_scale", "embedding_multiplier");
  copy("residual_scale", "residual_multiplier");
  copy("logit_scale", "logits_scaling");
}

const Family& find_family(const Config& config) {
  const std::string type = config.find_text("model_type").value_or("");
  if (type.empty()) config.reject("model_type", "the name of a family");
  // The language model of one that also sees or hears.
  std::string_view name = type;
  if (name.ends_with("_text")) name.remove_suffix(5);
  std::string known;
  std::string_view last;
  const std::span<const Family> tables[] = {kFamilies, sigmoid_families(), recurrent_families(), encoder_families()};
  for (const std::span<const Family> families : tables) {
    for (const Family& family : families) {
      if (family.model_type == name && (family.applies == nullptr || family.applies(config))) return family;
      if (family.model_type == last) continue;
      last = family.model_type;
      known += known.empty() ? "" : ", ";
      known += family.model_type;
    }
  }
  fail("\"{}\": folders of model_type \"{}\" are not read (known: {}); a GGUF file of the model may work",
       config.path(), printable(type), known);
}

std::span<const NameRule> common_layer_rules() {
  return kLayerRules;
}

std::span<const NameRule> common_model_rules() {
  return kModelRules;
}

}  // namespace inferno::hf
