// Families whose experts are chosen by sigmoids: GLM-4.5 to 4.7, and with latent attention GLM-4.7-Flash and DeepSeek
// V3.
#include "base/error.h"
#include "hf/family_tables.h"

namespace inferno::hf {
namespace {

constexpr NameRule kGlm4Moe[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
};

constexpr NameRule kLatent[] = {
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
    {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"self_attn.kv_b_proj.weight", "attn_k_b.weight", Change::latent_keys},
    {"self_attn.kv_b_proj.weight", "attn_v_b.weight", Change::latent_values},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
};

void set_glm4_moe(const Config& config, MetadataList& metadata) {
  set_sigmoid_experts(config, metadata);
  const bool stated = config.rope().has("partial_rotary_factor") || config.has("partial_rotary_factor");
  const double factor = stated ? config.rotary_factor() : 0.5;
  metadata.size("rope.dimension_count", static_cast<uint32_t>(factor * config.head_dim()));
}

// All heads share a row of the cache: one key-value head of the latent elements and those that rotate.
void set_latent(const Config& config, MetadataList& metadata) {
  set_sigmoid_experts(config, metadata);
  constexpr uint32_t kMost = 1 << 24;  // so that sums of two of them fit
  const auto size = [&](std::string_view key) {
    const uint32_t value = config.get_uint(key);
    if (value > kMost) config.reject(key, "at most 2^24");
    return value;
  };
  const uint32_t rank = size("kv_lora_rank");
  const uint32_t rotated = size("qk_rope_head_dim");
  metadata.size("vocab_size", config.get_uint("vocab_size"));
  metadata.size("attention.head_count_kv", 1);
  if (const auto query_rank = config.find_uint("q_lora_rank")) metadata.size("attention.q_lora_rank", *query_rank);
  metadata.size("attention.kv_lora_rank", rank);
  metadata.size("attention.key_length", rank + rotated);
  metadata.size("attention.value_length", rank);
  metadata.size("attention.key_length_mla", size("qk_nope_head_dim") + rotated);
  metadata.size("attention.value_length_mla", size("v_head_dim"));
  metadata.size("rope.dimension_count", rotated);
  if (!config.find_bool("rope_interleave").value_or(true)) config.reject("rope_interleave", "true");
  // Files have a tenth of it.
  if (const auto growth = config.rope().find_number("mscale_all_dim"))
    metadata.number("rope.scaling.yarn_log_multiplier", 0.1 * *growth);
}

constexpr Family kSigmoid[] = {
    {.model_type = "glm4_moe", .architecture = "glm4moe", .rules = kGlm4Moe, .set_metadata = set_glm4_moe},
    {.model_type = "glm4_moe_lite", .architecture = "deepseek2", .rules = kLatent, .set_metadata = set_latent},
    {.model_type = "deepseek_v3", .architecture = "deepseek2", .rules = kLatent, .set_metadata = set_latent},
};

}  // namespace

std::span<const Family> sigmoid_families() {
  return kSigmoid;
}

void set_sigmoid_experts(const Config& config, MetadataList& metadata) {
  constexpr uint32_t kSigmoidScore = 2;
  if (config.find_text("scoring_func").value_or("sigmoid") != "sigmoid") config.reject("scoring_func", "sigmoid");
  metadata.size("expert_gating_func", kSigmoidScore);
  metadata.size("expert_feed_forward_length", config.get_uint("moe_intermediate_size"));
  if (const auto shared = config.find_uint("n_shared_experts")) metadata.size("expert_shared_count", *shared);
  if (const auto dense = config.find_uint("first_k_dense_replace")) metadata.size("leading_dense_block_count", *dense);
  if (const auto scale = config.find_number("routed_scaling_factor")) metadata.number("expert_weights_scale", *scale);
  metadata.set(metadata.own("expert_weights_norm"), config.find_bool("norm_topk_prob").value_or(true));
  if (const auto groups = config.find_uint("n_group")) metadata.size("expert_group_count", *groups);
  if (const auto groups = config.find_uint("topk_group")) metadata.size("expert_group_used_count", *groups);
}

}  // namespace inferno::hf
