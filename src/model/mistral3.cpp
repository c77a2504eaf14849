// Mistral Small 3.2, Ministral 3, Devstral 2: a Llama with yarn, whose queries grow with their position.
#include "base/error.h"
#include "model/config.h"

namespace inferno {
namespace {

void configure(const ConfigKeys& keys, ModelConfig& config) {
  RopeConfig& rope = config.ropes[0];
  rope.pairing = RopePairing::interleaved;
  if (!keys.has("attention.temperature_scale")) return;
  rope.temperature = keys.positive("attention.temperature_scale", std::nullopt);
  if (rope.original_context == 0) rope.original_context = keys.size("rope.scaling.original_context_length");
  if (rope.rotated_dims != config.layers[0].head_dim) {
    fail("\"{}\": {} needs heads that rotate as a whole", keys.file().path(), keys.key("attention.temperature_scale"));
  }
}

}  // namespace

const Architecture kMistral3 = {"mistral3", configure};

}  // namespace inferno
