// Rewrites a model file with its matrices in another type or mix of types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace inferno {

struct QuantizeReport {
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  // "blk.0.ffn_down.weight: rows of 352 do not divide by 256: Q8_0 instead of Q6_K"
  std::vector<std::string> fallbacks;
};

// `type` is one of weight_type_names(), in any case; anything else is a usage Error. Matrices take the type (or what
// the mix says for them), vectors stay F32, metadata is copied. The file appears under `output` only when it is
// complete.
QuantizeReport quantize_model(const GgufFile& input, const std::string& output, std::string_view type, int threads,
                              bool quiet);

}  // namespace inferno
