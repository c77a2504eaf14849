// Llama 2 and 3, SmolLM2 and their kin: no biases; GGUF files hold q and k permuted for interleaved rotation. The
// scaling of Llama 3's positions comes as a tensor of frequency factors. Mixtral is a Llama with experts.
#include "base/error.h"
#include "model/config.h"

namespace inferno {

const Architecture kLlama = {"llama", [](const ConfigKeys& keys, ModelConfig& config) {
                               if (keys.file().find_uint(keys.key("expert_count")).value_or(0) > 0) {
                                 fail("\"{}\": {} is set; models of several experts are not supported",
                                      keys.file().path(), keys.key("expert_count"));
                               }
                               config.ropes[0].pairing = RopePairing::interleaved;
                             }};

}  // namespace inferno
