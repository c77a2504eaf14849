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

// Names a user may ask for: every weight type, and the mixes Q4_K_M and Q5_K_M.
[[nodiscard]] std::string quantize_type_names();

struct WeightType {
  DType dtype;
  DType wanted;  // another one when its blocks do not divide the rows
};
// What a matrix becomes in a file of the named type or mix. `tied`: the model has no output.weight of its own. An
// unknown name is a usage Error.
[[nodiscard]] WeightType choose_weight_type(std::string_view type, std::string_view tensor, const Shape& shape,
                                            bool tied, int32_t layers);
// general.file_type of such a file, as other programs number it, and back: empty for a number without a name here.
[[nodiscard]] uint32_t gguf_file_type(std::string_view type);
[[nodiscard]] std::string_view file_type_name(uint64_t file_type);

// `type` is one of those names, in any case; anything else is a usage Error. Matrices take the type (or what the mix
// says for them), vectors stay F32, metadata is copied. The file appears under `output` only when it is complete.
QuantizeReport quantize_model(const GgufFile& input, const std::string& output, std::string_view type, int threads,
                              bool quiet);

}  // namespace inferno
