// Seed-OSS: biases on q, k and v, half-split rotation; what it calls post_attention_norm is the norm before the MLP.
#include "model/config.h"

namespace inferno {

const Architecture kSeedOss = {"seed_oss", [](const ConfigKeys& /*keys*/, ModelConfig& config) {
                                 for (LayerConfig& layer : config.layers) {
                                   layer.ffn_norm_tensor = "post_attention_norm.weight";
                                 }
                               }};

}  // namespace inferno
