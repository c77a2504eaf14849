// Llama 2 and 3, SmolLM2 and their kin: no biases; GGUF files hold q and k permuted for interleaved rotation. The
// scaling of Llama 3's positions comes as a tensor of frequency factors. Mixtral is a Llama with experts.
#include "model/config.h"

namespace inferno {

const Architecture kLlama = {"llama", [](const ConfigKeys& keys, ModelConfig& config) {
                               config.ropes[0].pairing = RopePairing::interleaved;
                               if (keys.file().find_uint(keys.key("expert_count")).value_or(0) > 0) {
                                 set_experts(keys, config, 0, {.score = RouterScore::softmax, .normalize = true});
                               }
                             }};

}  // namespace inferno
