// Qwen3 with experts (30B-A3B, 235B-A22B, Coder): the attention of Qwen3, experts in every layer.
#include "model/config.h"

namespace inferno {

const Architecture kQwen3Moe = {"qwen3moe", [](const ConfigKeys& keys, ModelConfig& config) {
                                  for (LayerConfig& layer : config.layers) layer.qk_norm = QkNorm::heads;
                                  set_experts(keys, config, 0, {.score = RouterScore::softmax, .normalize = true});
                                }};

}  // namespace inferno
