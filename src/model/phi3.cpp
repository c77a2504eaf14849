// Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: q, k and v in one tensor, gate and up in one, longrope.
#include "base/error.h"
#include "model/config.h"

namespace inferno {
namespace {

void configure(const ConfigKeys& keys, ModelConfig& config) {
  // 0 says that there is none.
  if (keys.file().find_uint(keys.key("attention.sliding_window")).value_or(0) > 0) {
    set_windows(keys, config, keys.size("attention.sliding_window"), 0);
  }
  for (LayerConfig& layer : config.layers) {
    layer.fused_qkv = true;
    layer.fused_gate_up = true;
    if (layer.ffn_bias) fail("\"{}\": biases of the MLP are not supported in phi3", keys.file().path());
  }
}

}  // namespace

const Architecture kPhi3 = {"phi3", configure};

}  // namespace inferno
