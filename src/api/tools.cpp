// Of inferno/tools.h, what needs no more than a file.
#include "inferno/tools.h"

#include "base/error.h"
#include "engine/builtin_model.h"
#include "model/model_info.h"
#include "model/quantize_model.h"

namespace inferno {

ModelInfo inspect_model(const std::string& path) {
  const GgufFile file = open_model(path);
  ModelInfo info = inspect_model(file);
  info.gguf_version = file.version();
  info.parts = file.part_count();
  return info;
}

QuantizeReport quantize_model(const std::string& input, const std::string& output, std::string_view type, int threads,
                              const OnProgress& on_progress) {
  if (threads < 0) fail_usage("`threads` is {}; give 1 or more, or 0 for the default", threads);
  return quantize_model(open_model(input), output, type, threads, on_progress);
}

}  // namespace inferno
