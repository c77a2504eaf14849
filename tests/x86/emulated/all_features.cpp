// Replaces the one of src/base: a CPU that has every feature, whatever it runs on.
#include "base/cpu_features.h"

namespace inferno {

const CpuFeatures& cpu_features() {
  static const CpuFeatures all = {
      .avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true, .amx_int8 = true, .amx_bf16 = true};
  return all;
}

std::vector<std::string> cpu_feature_names() {
  return {};
}

bool may_use_tiles() {
  return true;
}

}  // namespace inferno
