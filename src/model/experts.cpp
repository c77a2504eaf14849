// What a file says about experts.
#include <algorithm>

#include "base/error.h"
#include "model/config.h"
#include "model/tensor_names.h"

namespace inferno {
namespace {

// More than any model has.
constexpr uint64_t kMaxExperts = 4096;
constexpr int32_t kMaxExpertsUsed = 64;

int32_t read_used(const ConfigKeys& keys, int32_t count) {
  const int32_t used = keys.size("expert_used_count");
  if (used > std::min(count, kMaxExpertsUsed)) {
    fail("\"{}\": {} is {} of {} experts, must be at most {}", keys.file().path(), keys.key("expert_used_count"), used,
         count, std::min(count, kMaxExpertsUsed));
  }
  return used;
}

RouterScore read_score(const ConfigKeys& keys, RouterScore fallback) {
  const uint64_t number = keys.file().find_uint(keys.key("expert_gating_func")).value_or(0);
  if (number == 0) return fallback;
  constexpr RouterScore kScores[] = {RouterScore::softmax, RouterScore::sigmoid, RouterScore::softmax_chosen,
                                     RouterScore::sqrt_softplus};
  if (number > std::size(kScores)) {
    fail("\"{}\": {} is {}, must be 1 to {}", keys.file().path(), keys.key("expert_gating_func"), number,
         std::size(kScores));
  }
  return kScores[number - 1];
}

// Some files name the size, some how many experts it is worth.
int32_t read_shared_ffn(const ConfigKeys& keys, int32_t ffn) {
  if (keys.has("expert_shared_feed_forward_length")) return keys.size("expert_shared_feed_forward_length");
  const uint64_t count = keys.file().find_uint(keys.key("expert_shared_count")).value_or(0);
  if (count * static_cast<uint64_t>(ffn) > ConfigKeys::kMaxSize || count > kMaxExperts) {
    fail("\"{}\": {} is {}, too many of {} rows", keys.file().path(), keys.key("expert_shared_count"), count, ffn);
  }
  return static_cast<int32_t>(count) * ffn;
}

// Only the experts of some groups can be a token's.
void read_groups(const ConfigKeys& keys, ExpertsConfig& experts) {
  const std::string count_key = keys.key("expert_group_count");
  if (keys.file().find_uint(count_key).value_or(0) <= 1) return;
  const int32_t groups = keys.size("expert_group_count", kMaxExpertGroups);
  const int32_t used = keys.size("expert_group_used_count", static_cast<uint64_t>(groups));
  if (experts.count % groups != 0) {
    fail("\"{}\": {} is {}, which does not divide {} experts", keys.file().path(), count_key, groups, experts.count);
  }
  if (experts.routing.used > experts.count / groups * used) {
    fail("\"{}\": {} is {}, more experts than {} groups of {} have", keys.file().path(), keys.key("expert_used_count"),
         experts.routing.used, used, experts.count / groups);
  }
  experts.routing.groups = groups;
  experts.routing.groups_used = used;
}

ExpertsConfig read_experts(const ConfigKeys& keys, const ModelConfig& config, const Routing& fallback) {
  ExpertsConfig experts;
  experts.count = keys.size("expert_count", kMaxExperts);
  // Products of sizes are rows of one weight.
  experts.ffn = keys.has("expert_feed_forward_length") ? keys.size("expert_feed_forward_length", uint64_t{1} << 20)
                                                       : config.layers.back().ffn;
  experts.routing.used = read_used(keys, experts.count);
  experts.routing.score = read_score(keys, fallback.score);
  experts.routing.normalize = keys.file().find_bool(keys.key("expert_weights_norm")).value_or(fallback.normalize);
  experts.routing.scale = keys.positive_float("expert_weights_scale", double{fallback.scale});
  experts.routing.logit_scale = fallback.logit_scale;
  experts.shared_ffn = read_shared_ffn(keys, experts.ffn);
  read_groups(keys, experts);
  return experts;
}

}  // namespace

int32_t leading_dense_layers(const ConfigKeys& keys, const ModelConfig& config) {
  const uint64_t count = keys.file().find_uint(keys.key("leading_dense_block_count")).value_or(0);
  return static_cast<int32_t>(std::min<uint64_t>(count, static_cast<uint64_t>(config.layer_count())));
}

void set_experts(const ConfigKeys& keys, ModelConfig& config, int32_t first_layer, const Routing& fallback) {
  const ExpertsConfig common = read_experts(keys, config, fallback);
  for (int32_t i = first_layer; i < config.layer_count(); ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    const auto has = [&](const char* part) { return keys.file().find_tensor(layer_tensor_name(i, part)) != nullptr; };
    layer.ffn = 0;
    layer.experts = common;
    layer.experts.shared_gate = common.shared_ffn > 0 && has("ffn_gate_inp_shexp.weight");
    layer.experts.selection_bias = has("exp_probs_b.bias");
    layer.experts.router_bias = has("ffn_gate_inp.bias");
    layer.experts.bias = has("ffn_up_exps.bias");
    layer.experts.fused_gate_up = has("ffn_gate_up_exps.weight");
  }
}

}  // namespace inferno
