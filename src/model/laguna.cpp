// Laguna: one layer without a window, then three with one and a rotation of their own; norms of heads; a gate per head
// of attention's output; a dense layer or more, then experts beside one that all tokens have.
#include "base/error.h"
#include "model/config.h"

namespace inferno {
namespace {

constexpr int32_t kPeriod = 4;

void configure(const ConfigKeys& keys, ModelConfig& config) {
  RopeConfig local;
  local.rotated_dims = keys.find_size("rope.dimension_count_swa").value_or(config.ropes[0].rotated_dims);
  if (local.rotated_dims % 2 != 0 || local.rotated_dims > config.layers[0].head_dim) {
    fail("\"{}\": {} is {}, must be even and at most the head's {}", keys.file().path(),
         keys.key("rope.dimension_count_swa"), local.rotated_dims, config.layers[0].head_dim);
  }
  local.base = keys.positive("rope.freq_base_swa", config.ropes[0].base);
  config.ropes.push_back(local);
  const int32_t window = keys.size("attention.sliding_window");
  set_windows(keys, config, window, kPeriod);
  const bool says = keys.has("attention.sliding_window_pattern");
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    // The first of a period is the one without.
    if (!says) layer.window = i % kPeriod == 0 ? 0 : window;
    layer.rope = layer.window != 0 ? 1 : 0;
    layer.qk_norm = QkNorm::heads;
    layer.output_gate = OutputGate::heads;
    layer.gate_activation = Activation::softplus;
  }
  set_experts(keys, config, leading_dense_layers(keys, config), {.score = RouterScore::sigmoid, .normalize = true});
}

}  // namespace

const Architecture kLaguna = {"laguna", configure};

}  // namespace inferno
