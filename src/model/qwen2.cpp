// Qwen2 and Qwen2.5: biases on q, k and v, half-split rotation.
#include "model/config.h"

namespace inferno {

const Architecture kQwen2 = {"qwen2", [](ModelConfig& config) {
                               config.pairing = RopePairing::half_split;
                               config.qkv_bias = true;
                             }};

}  // namespace inferno
