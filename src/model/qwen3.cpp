// Qwen3: RMS norms on the heads of q and k, no biases, half-split rotation.
#include "model/config.h"

namespace inferno {

const Architecture kQwen3 = {"qwen3", [](const ConfigKeys& /*keys*/, ModelConfig& config) {
                               config.ropes[0].pairing = RopePairing::half_split;
                               for (LayerConfig& layer : config.layers) layer.qk_norm = QkNorm::heads;
                             }};

}  // namespace inferno
