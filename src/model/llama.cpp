// Llama 2 and 3, SmolLM2 and their kin: no biases; GGUF files hold q and k permuted for interleaved rotation. The
// scaling of Llama 3's positions comes as a tensor of frequency factors, rope_freqs.weight.
#include "model/config.h"

namespace inferno {

const Architecture kLlama = {"llama", [](ModelConfig& config) { config.pairing = RopePairing::interleaved; }};

}  // namespace inferno
