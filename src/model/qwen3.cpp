// Qwen3: RMS norms on the heads of q and k, no biases, half-split rotation.
#include "model/config.h"

namespace inferno {

const Architecture kQwen3 = {"qwen3", [](ModelConfig& config) {
                               config.pairing = RopePairing::half_split;
                               config.qk_norm = true;
                             }};

}  // namespace inferno
