// Rewrites a model file with its matrices in another type or mix of types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "gguf/gguf.h"
#include "model/model_info.h"

namespace inferno {

struct QuantizeReport {
  uint64_t bytes_in = 0;               // of the files
  uint64_t bytes_out = 0;              // of the file
  std::vector<TensorTypeTotal> types;  // of the written tensors, largest first
  // "blk.0.ffn_down.weight: rows of 352 do not divide by 256: Q8_0 instead of Q6_K"
  std::vector<std::string> fallbacks;
};

// `type` is one of weight_type_names(), in any case; anything else is a usage Error. Matrices take the type (or what
// the mix says for them), vectors stay F32, metadata is copied. The file appears under `output` only when it is
// complete. `threads` 0: all that pay off. Progress is counted in bytes of the input.
QuantizeReport quantize_model(const GgufFile& input, const std::string& output, std::string_view type, int threads = 0,
                              const OnProgress& on_progress = {});

}  // namespace inferno
