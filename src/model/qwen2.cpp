// Qwen2 and Qwen2.5: biases on q, k and v, half-split rotation.
#include "model/config.h"

namespace inferno {

const Architecture kQwen2 = {"qwen2", [](const ConfigKeys& /*keys*/, ModelConfig& config) {
                               config.ropes[0].pairing = RopePairing::half_split;
                               for (LayerConfig& layer : config.layers) layer.qkv_bias = true;
                             }};

}  // namespace inferno
