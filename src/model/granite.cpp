// Granite 3 and 4, dense: a Llama whose embedding, scores, additions to the residual stream and logits are scaled.
#include "model/config.h"

namespace inferno {

const Architecture kGranite = {"granite", [](const ConfigKeys& keys, ModelConfig& config) {
                                 const auto scale = [&](const char* suffix, double fallback) {
                                   return keys.positive_float(suffix, fallback);
                                 };
                                 config.ropes[0].pairing = RopePairing::interleaved;
                                 config.embedding_scale = scale("embedding_scale", 1);
                                 config.residual_scale = scale("residual_scale", 1);
                                 config.logit_scale = 1 / scale("logit_scale", 1);
                                 if (!keys.has("attention.scale")) return;
                                 for (LayerConfig& layer : config.layers) {
                                   layer.attention_scale = scale("attention.scale", 1);
                                 }
                               }};

}  // namespace inferno
