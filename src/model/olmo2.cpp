// OLMo 2 and 3: norms of what is added to the residual stream instead of its own, norms of whole rows of q and k. OLMo
// 3 has windows in three of four layers, and stretches the rotation of the others alone.
#include "model/config.h"

namespace inferno {
namespace {

constexpr int32_t kPeriod = 4;

void configure(const ConfigKeys& keys, ModelConfig& config) {
  if (keys.has("attention.sliding_window")) {
    RopeConfig local;
    local.rotated_dims = config.ropes[0].rotated_dims;
    local.base = keys.positive("rope.freq_base_swa", config.ropes[0].base);
    config.ropes.push_back(local);
    set_windows(keys, config, keys.size("attention.sliding_window"), kPeriod);
  }
  for (LayerConfig& layer : config.layers) {
    layer.rope = layer.window != 0 ? 1 : 0;
    layer.qk_norm = QkNorm::rows;
    layer.pre_norms = false;
    layer.post_norms = true;
  }
}

}  // namespace

const Architecture kOlmo2 = {"olmo2", configure};

}  // namespace inferno
