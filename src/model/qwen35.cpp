// Qwen3-Next, Qwen3.5, 3.6 and 3.8: three layers of the gated delta rule behind a short convolution, then one of
// attention, whose output has a gate that the query projection makes; norms of heads; part of a head rotates. What they
// call post_attention_norm is the norm before the MLP. With experts beside one that all tokens have: Qwen3-Next and the
// A3B models.
#include "base/error.h"
#include "model/config.h"

namespace inferno {
namespace {

constexpr int32_t kPeriod = 4;
// Sizes of states are products of these.
constexpr uint64_t kMaxHeads = 1024;
constexpr uint64_t kMaxHeadDim = 1024;

RecurrentConfig read_delta_net(const ConfigKeys& keys) {
  RecurrentConfig r;
  r.conv_taps = keys.size("ssm.conv_kernel", kMaxConvTaps);
  r.k_heads = keys.size("ssm.group_count", kMaxHeads);
  r.v_heads = keys.size("ssm.time_step_rank", kMaxHeads);
  r.head_dim = keys.size("ssm.state_size", kMaxHeadDim);
  r.conv_channels = (2 * r.k_heads + r.v_heads) * r.head_dim;
  const std::string& path = keys.file().path();
  if (r.conv_taps < 2) fail("\"{}\": {} is {}, must be 2 or more", path, keys.key("ssm.conv_kernel"), r.conv_taps);
  if (r.head_dim % 4 != 0) {
    fail("\"{}\": {} is {}, must be a multiple of 4", path, keys.key("ssm.state_size"), r.head_dim);
  }
  if (r.v_heads % r.k_heads != 0) {
    fail("\"{}\": {} value heads cannot share {} key heads evenly ({}, {})", path, r.v_heads, r.k_heads,
         keys.key("ssm.time_step_rank"), keys.key("ssm.group_count"));
  }
  const int32_t inner = keys.size("ssm.inner_size");
  if (inner != r.value_width()) {
    fail("\"{}\": {} is {}, but {} heads of {} elements have {}", path, keys.key("ssm.inner_size"), inner, r.v_heads,
         r.head_dim, r.value_width());
  }
  return r;
}

// Which layers are recurrent: all but every `full_attention_interval`th, unless the file says it layer by layer.
std::vector<bool> read_pattern(const ConfigKeys& keys, size_t layers) {
  const std::string_view list = "attention.recurrent_layers";
  if (keys.has(list)) {
    const std::vector<bool> flags = *keys.file().find_bools(keys.key(list));
    if (flags.size() < layers) {
      fail("\"{}\": {} has {} entries for {} layers", keys.file().path(), keys.key(list), flags.size(), layers);
    }
    return flags;
  }
  const auto period = static_cast<size_t>(keys.find_size("full_attention_interval").value_or(kPeriod));
  std::vector<bool> flags;
  for (size_t i = 0; i < layers; ++i) flags.push_back((i + 1) % period != 0);
  return flags;
}

void configure(const ConfigKeys& keys, ModelConfig& config, bool next) {
  RecurrentConfig recurrent = read_delta_net(keys);
  recurrent.grouped = recurrent.fused_beta_alpha = next;
  const std::vector<bool> pattern = read_pattern(keys, config.layers.size());
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.qk_norm = QkNorm::heads;
    layer.ffn_norm_tensor = "post_attention_norm.weight";
    layer.output_gate = OutputGate::elements;
    layer.gate_in_q = true;
    if (layer.v_head_dim != 0) {
      fail("\"{}\": {} must be the same as {}: gates follow queries head by head", keys.file().path(),
           keys.key("attention.value_length"), keys.key("attention.key_length"));
    }
    if (pattern[i]) set_recurrent(layer, Mixer::delta_net, recurrent);
  }
}

void configure_moe(const ConfigKeys& keys, ModelConfig& config, bool next) {
  configure(keys, config, next);
  set_experts(keys, config, 0, {.score = RouterScore::softmax, .normalize = true});
}

}  // namespace

const Architecture kQwen35 = {"qwen35",
                              [](const ConfigKeys& keys, ModelConfig& config) { configure(keys, config, false); }};
const Architecture kQwen35Moe = {
    "qwen35moe", [](const ConfigKeys& keys, ModelConfig& config) { configure_moe(keys, config, false); }};
const Architecture kQwen3Next = {
    "qwen3next", [](const ConfigKeys& keys, ModelConfig& config) { configure_moe(keys, config, true); }};

}  // namespace inferno
