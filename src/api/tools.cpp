// Of inferno/tools.h, what needs no more than a file.
#include "inferno/tools.h"

#include "engine/builtin_model.h"
#include "model/model_info.h"
#include "model/quantize_model.h"

namespace inferno {

ModelInfo inspect_model(const std::string& path) {
  const AnyModelFile file = open_model(path);
  ModelInfo info = inspect_model(file);
  if (file.gguf() != nullptr) info.gguf_version = file.gguf()->version();
  info.parts = file.files().size();
  return info;
}

QuantizeReport quantize_model(const std::string& input, const std::string& output, std::string_view type,
                              const QuantizeOptions& options) {
  return quantize_model(open_model(input), output, type, options);
}

}  // namespace inferno
