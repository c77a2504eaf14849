// SmolLM3: a Llama in which every fourth layer does not rotate.
#include "model/config.h"

namespace inferno {

const Architecture kSmolLm3 = {"smollm3", [](const ConfigKeys& /*keys*/, ModelConfig& config) {
                                 constexpr size_t kPeriod = 4;
                                 config.ropes[0].pairing = RopePairing::interleaved;
                                 for (size_t i = kPeriod - 1; i < config.layers.size(); i += kPeriod) {
                                   config.layers[i].rope = kNoRope;
                                 }
                               }};

}  // namespace inferno
