// MiniMax M2: norms of whole rows of q and k, half of a head rotates, experts in every layer.
#include "model/config.h"

namespace inferno {

const Architecture kMiniMaxM2 = {"minimax-m2", [](const ConfigKeys& keys, ModelConfig& config) {
                                   for (LayerConfig& layer : config.layers) layer.qk_norm = QkNorm::rows;
                                   set_experts(keys, config, 0, {.score = RouterScore::sigmoid, .normalize = true});
                                 }};

}  // namespace inferno
