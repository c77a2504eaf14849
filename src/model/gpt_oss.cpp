// gpt-oss: biases everywhere, a sink per head of attention, windows in every other layer, yarn whose ramp begins and
// ends between dimensions, experts with a clamped activation. What it calls post_attention_norm is the norm before the
// MLP.
#include "model/config.h"

namespace inferno {
namespace {

constexpr int32_t kPeriod = 2;

void configure(const ConfigKeys& keys, ModelConfig& config) {
  config.ropes[0].yarn_truncates = false;
  set_windows(keys, config, keys.size("attention.sliding_window"), kPeriod);
  for (LayerConfig& layer : config.layers) {
    layer.sinks = true;
    layer.ffn_norm_tensor = "post_attention_norm.weight";
    layer.activation = Activation::clamped_silu;
  }
  set_experts(keys, config, 0, {.score = RouterScore::softmax_chosen});
}

}  // namespace

const Architecture kGptOss = {"gpt-oss", configure};

}  // namespace inferno
