// Families with layers that keep a state in place of keys and values: LFM2, Granite 4, Nemotron-H and Nemotron 3.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "hf/family_tables.h"

namespace inferno::hf {
namespace {

// ---- LFM2

constexpr NameRule kLfm2Model[] = {{"embedding_norm.weight", "token_embd_norm.weight"}};

constexpr NameRule kLfm2[] = {
    {"operator_norm.weight", "attn_norm.weight"},
    {"ffn_norm.weight", "ffn_norm.weight"},
    {"self_attn.out_proj.weight", "attn_output.weight"},
    {"self_attn.q_layernorm.weight", "attn_q_norm.weight"},
    {"self_attn.k_layernorm.weight", "attn_k_norm.weight"},
    {"conv.conv.weight", "shortconv.conv.weight"},
    {"conv.in_proj.weight", "shortconv.in_proj.weight"},
    {"conv.out_proj.weight", "shortconv.out_proj.weight"},
    {"feed_forward.w1.weight", "ffn_gate.weight"},
    {"feed_forward.w2.weight", "ffn_down.weight"},
    {"feed_forward.w3.weight", "ffn_up.weight"},
    {"feed_forward.gate.weight", "ffn_gate_inp.weight"},
    {"feed_forward.expert_bias", "exp_probs_b.bias"},
    {"feed_forward.experts.*.w1.weight", "ffn_gate_exps.weight"},
    {"feed_forward.experts.*.w2.weight", "ffn_down_exps.weight"},
    {"feed_forward.experts.*.w3.weight", "ffn_up_exps.weight"},
};

// Older files name the layers with attention, newer ones the kind of each.
std::vector<bool> attention_layers(const Config& config) {
  if (const auto layers = config.layers_of_type("full_attention")) return *layers;
  const auto numbers = config.find_numbers("full_attn_idxs");
  if (!numbers) config.reject("layer_types", "a list of the layers' kinds");
  std::vector<bool> layers(config.layers());
  for (const double number : *numbers) {
    if (!(number >= 0 && number < static_cast<double>(layers.size())))
      config.reject("full_attn_idxs", "numbers of layers");
    layers[static_cast<size_t>(number)] = true;
  }
  return layers;
}

void set_lfm2_common(const Config& config, MetadataList& metadata) {
  if (config.find_bool("conv_bias").value_or(false)) config.reject("conv_bias", "false");
  set_by_layer("attention.head_count_kv", attention_layers(config), config.kv_heads(), metadata);
  metadata.size("vocab_size", config.get_uint("vocab_size"));
  metadata.size("shortconv.l_cache", config.get_uint("conv_L_cache"));
  if (const auto eps = config.find_number("norm_eps")) metadata.number("attention.layer_norm_rms_epsilon", *eps);
}

// The stated size is two thirds larger than that of the matrices, and rounded up, unless the file says otherwise.
void set_lfm2(const Config& config, MetadataList& metadata) {
  set_lfm2_common(config, metadata);
  uint64_t size = config.find_uint_of({"block_ff_dim", "intermediate_size"}).value_or(0);
  if (config.find_bool("block_auto_adjust_ff_dim").value_or(true)) {
    size = 2 * size / 3;
    const double factor = config.find_number("block_ffn_dim_multiplier").value_or(1);
    const uint64_t multiple = std::max(1U, config.find_uint("block_multiple_of").value_or(256));
    const double scaled = std::floor(factor * static_cast<double>(size));
    if (!(scaled >= 0 && scaled < 1e9)) config.reject("block_ffn_dim_multiplier", "a factor of the MLP's size");
    size = (static_cast<uint64_t>(scaled) + multiple - 1) / multiple * multiple;
  }
  if (size > UINT32_MAX) config.reject("block_multiple_of", "a factor of the MLP's size");
  metadata.size("feed_forward_length", static_cast<uint32_t>(size));
}

void set_lfm2_moe(const Config& config, MetadataList& metadata) {
  set_lfm2_common(config, metadata);
  if (!config.find_bool("norm_topk_prob").value_or(true)) config.reject("norm_topk_prob", "true");
  metadata.size("expert_feed_forward_length", config.get_uint("moe_intermediate_size"));
  metadata.size("leading_dense_block_count", config.get_uint("num_dense_layers"));
  metadata.size("expert_gating_func", 2);
  const double scale = config.find_number("routed_scaling_factor").value_or(1);
  if (scale != 1) metadata.number("expert_weights_scale", scale);
}

// ---- Granite 4

constexpr NameRule kGraniteMamba[] = {
    {"mamba.in_proj.weight", "ssm_in.weight"},
    {"mamba.conv1d.weight", "ssm_conv1d.weight"},
    {"mamba.conv1d.bias", "ssm_conv1d.bias"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"mamba.A_log", "ssm_a", Change::minus_exp_column},
    {"mamba.D", "ssm_d", Change::column},
    {"mamba.norm.weight", "ssm_norm.weight", Change::groups},
    {"mamba.out_proj.weight", "ssm_out.weight"},
    {"shared_mlp.input_linear.weight", "ffn_gate.weight", Change::first_half},
    {"shared_mlp.input_linear.weight", "ffn_up.weight", Change::second_half},
    {"shared_mlp.output_linear.weight", "ffn_down.weight"},
};

constexpr NameRule kGraniteMoe[] = {
    {"mamba.in_proj.weight", "ssm_in.weight"},
    {"mamba.conv1d.weight", "ssm_conv1d.weight"},
    {"mamba.conv1d.bias", "ssm_conv1d.bias"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"mamba.A_log", "ssm_a", Change::minus_exp_column},
    {"mamba.D", "ssm_d", Change::column},
    {"mamba.norm.weight", "ssm_norm.weight", Change::groups},
    {"mamba.out_proj.weight", "ssm_out.weight"},
    {"shared_mlp.input_linear.weight", "ffn_gate_shexp.weight", Change::first_half},
    {"shared_mlp.input_linear.weight", "ffn_up_shexp.weight", Change::second_half},
    {"shared_mlp.output_linear.weight", "ffn_down_shexp.weight"},
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
    {"block_sparse_moe.input_linear.weight", "ffn_gate_exps.weight", Change::first_half},
    {"block_sparse_moe.input_linear.weight", "ffn_up_exps.weight", Change::second_half},
    {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"},
};

bool has_experts(const Config& config) {
  return config.find_uint_of({"num_local_experts", "n_routed_experts"}).value_or(0) > 0;
}

// Layers of one kind, which older and newer files name differently.
std::vector<bool> layers_of_either(const Config& config, std::string_view name, std::string_view other) {
  auto layers = config.layers_of_type(name);
  if (!layers) config.reject("layer_types", "a list of the layers' kinds");
  const auto others = config.layers_of_type(other);
  for (size_t i = 0; i < layers->size(); ++i) {
    if ((*others)[i]) (*layers)[i] = true;
  }
  return *layers;
}

// Granite 4's small models are of the same type without a recurrent layer.
bool is_plain_granite(const Config& config) {
  return !has_experts(config) &&
         std::ranges::count(layers_of_either(config, "full_attention", "attention"), false) == 0;
}

void set_plain_granite(const Config& config, MetadataList& metadata) {
  set_granite(config, metadata);
  metadata.size("feed_forward_length", config.get_uint("shared_intermediate_size"));
}

void set_granite_hybrid(const Config& config, MetadataList& metadata) {
  set_granite(config, metadata);
  const uint32_t heads = config.get_uint("mamba_n_heads");
  metadata.size("ssm.conv_kernel", config.get_uint("mamba_d_conv"));
  metadata.size("ssm.state_size", config.get_uint("mamba_d_state"));
  metadata.size("ssm.group_count", config.get_uint("mamba_n_groups"));
  metadata.size("ssm.time_step_rank", heads);
  metadata.size("ssm.inner_size", config.get_uint("mamba_expand") * config.get_uint("hidden_size"));
  set_by_layer("attention.head_count_kv", layers_of_either(config, "full_attention", "attention"), config.kv_heads(),
               metadata);
  const bool rotates = config.find_text("position_embedding_type").value_or("nope") == "rope";
  metadata.set(metadata.own("rope.scaling.finetuned"), rotates);
  const uint32_t shared = config.get_uint("shared_intermediate_size");
  metadata.size("expert_shared_feed_forward_length", shared);
  if (!has_experts(config)) metadata.size("feed_forward_length", shared);
}

// ---- Nemotron

constexpr NameRule kNemotronModel[] = {
    {"embeddings.weight", "token_embd.weight"},
    {"norm_f.weight", "output_norm.weight"},
};

constexpr NameRule kNemotron[] = {
    {"norm.weight", "attn_norm.weight"},
    {"mixer.in_proj.weight", "ssm_in.weight"},
    {"mixer.conv1d.weight", "ssm_conv1d.weight"},
    {"mixer.conv1d.bias", "ssm_conv1d.bias"},
    {"mixer.dt_bias", "ssm_dt.bias"},
    {"mixer.A_log", "ssm_a", Change::minus_exp_column},
    {"mixer.D", "ssm_d", Change::column},
    {"mixer.norm.weight", "ssm_norm.weight", Change::groups},
    {"mixer.out_proj.weight", "ssm_out.weight"},
    {"mixer.q_proj.weight", "attn_q.weight"},
    {"mixer.k_proj.weight", "attn_k.weight"},
    {"mixer.v_proj.weight", "attn_v.weight"},
    {"mixer.o_proj.weight", "attn_output.weight"},
    {"mixer.up_proj.weight", "ffn_up.weight"},
    {"mixer.down_proj.weight", "ffn_down.weight"},
    {"mixer.gate.weight", "ffn_gate_inp.weight"},
    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mixer.experts.*.up_proj.weight", "ffn_up_exps.weight"},
    {"mixer.experts.*.down_proj.weight", "ffn_down_exps.weight"},
    {"mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
};

// What each layer is, by a letter: M Mamba-2, * attention, - an MLP, E experts.
std::string nemotron_pattern(const Config& config) {
  if (const auto pattern = config.find_text("hybrid_override_pattern")) {
    if (pattern->size() != config.layers()) config.reject("hybrid_override_pattern", "a letter for each layer");
    return *pattern;
  }
  const auto kinds = config.find_texts("layers_block_type");
  if (!kinds || kinds->size() != config.layers()) config.reject("layers_block_type", "a list of the layers' kinds");
  std::string pattern;
  for (const std::string& kind : *kinds) {
    const bool mamba = kind == "linear_attention" || kind == "mamba";
    const bool attention = kind == "full_attention" || kind == "attention";
    pattern += mamba ? 'M' : attention ? '*' : kind == "moe" ? 'E' : '-';
  }
  return pattern;
}

std::vector<bool> layers_with(const std::string& pattern, char letter) {
  std::vector<bool> layers;
  for (const char c : pattern) layers.push_back(c == letter);
  return layers;
}

void set_nemotron(const Config& config, MetadataList& metadata) {
  const std::string pattern = nemotron_pattern(config);
  const uint32_t heads = config.get_uint("mamba_num_heads");
  metadata.size("vocab_size", config.get_uint("vocab_size"));
  metadata.size("ssm.conv_kernel", config.get_uint("conv_kernel"));
  metadata.size("ssm.state_size", config.get_uint("ssm_state_size"));
  metadata.size("ssm.group_count", config.get_uint("n_groups"));
  metadata.size("ssm.time_step_rank", heads);
  metadata.size("ssm.inner_size", heads * config.get_uint("mamba_head_dim"));
  const uint32_t head_dim = config.find_uint_of({"head_dim", "attention_head_dim"}).value_or(config.head_dim());
  metadata.size("attention.key_length", head_dim);
  metadata.size("attention.value_length", head_dim);
  if (const auto eps = config.find_number("layer_norm_epsilon"))
    metadata.number("attention.layer_norm_rms_epsilon", *eps);
  set_by_layer("attention.head_count_kv", layers_with(pattern, '*'), config.kv_heads(), metadata);
  if (pattern.find('E') == std::string::npos) {
    set_by_layer("feed_forward_length", layers_with(pattern, '-'), config.get_uint("intermediate_size"), metadata);
    return;
  }
  set_sigmoid_experts(config, metadata);
  set_by_layer("feed_forward_length", layers_with(pattern, 'E'), config.get_uint("moe_intermediate_size"), metadata);
  metadata.size("expert_shared_feed_forward_length", config.get_uint("moe_shared_expert_intermediate_size"));
}

constexpr Family kRecurrent[] = {
    {.model_type = "lfm2", .architecture = "lfm2", .rules = kLfm2, .model_rules = kLfm2Model, .set_metadata = set_lfm2},
    {.model_type = "lfm2_moe",
     .architecture = "lfm2moe",
     .rules = kLfm2,
     .model_rules = kLfm2Model,
     .set_metadata = set_lfm2_moe},
    {.model_type = "granitemoehybrid",
     .architecture = "granite",
     .applies = is_plain_granite,
     .rules = kGraniteMamba,
     .rope_pairs = true,
     .set_metadata = set_plain_granite},
    {.model_type = "granitemoehybrid",
     .architecture = "granitehybrid",
     .applies = has_experts,
     .rules = kGraniteMoe,
     .rope_pairs = true,
     .set_metadata = set_granite_hybrid},
    {.model_type = "granitemoehybrid",
     .architecture = "granitehybrid",
     .rules = kGraniteMamba,
     .rope_pairs = true,
     .set_metadata = set_granite_hybrid},
    {.model_type = "nemotron_h",
     .architecture = "nemotron_h_moe",
     .applies = [](const Config& config) { return nemotron_pattern(config).find('E') != std::string::npos; },
     .rules = kNemotron,
     .model_rules = kNemotronModel,
     .set_metadata = set_nemotron},
    {.model_type = "nemotron_h",
     .architecture = "nemotron_h",
     .rules = kNemotron,
     .model_rules = kNemotronModel,
     .set_metadata = set_nemotron},
};

}  // namespace

std::span<const Family> recurrent_families() {
  return kRecurrent;
}

void set_by_layer(std::string_view key, const std::vector<bool>& has, uint32_t size, MetadataList& metadata) {
  std::vector<int32_t> sizes;
  for (const bool with : has) sizes.push_back(with ? static_cast<int32_t>(std::min<uint32_t>(size, INT32_MAX)) : 0);
  metadata.set(metadata.own(key), MetadataArray{std::move(sizes)});
}

}  // namespace inferno::hf
