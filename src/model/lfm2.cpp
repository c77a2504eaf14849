// LFM2 and LFM2.5: most layers are a short convolution between two gates, which has no cache; in the list of key-value
// heads they have 0. The others are attention with norms of heads. What it calls token_embd_norm is the output norm.
// With experts after some dense layers: 8B-A1B, 24B-A2B.
#include "base/error.h"
#include "model/config.h"

namespace inferno {
namespace {

void configure(const ConfigKeys& keys, ModelConfig& config) {
  config.output_norm_tensor = "token_embd_norm.weight";
  const int32_t taps = keys.size("shortconv.l_cache", kMaxConvTaps);
  if (taps < 2) fail("\"{}\": {} is {}, must be 2 or more", keys.file().path(), keys.key("shortconv.l_cache"), taps);
  for (LayerConfig& layer : config.layers) {
    layer.qk_norm = QkNorm::heads;
    if (layer.kv_heads > 0) continue;
    set_recurrent(layer, Mixer::short_conv, {.conv_taps = taps, .conv_channels = config.width});
  }
}

}  // namespace

const Architecture kLfm2 = {"lfm2", configure};

const Architecture kLfm2Moe = {"lfm2moe", [](const ConfigKeys& keys, ModelConfig& config) {
                                 configure(keys, config);
                                 set_experts(keys, config, leading_dense_layers(keys, config),
                                             {.score = RouterScore::sigmoid, .normalize = true});
                               }};

}  // namespace inferno
