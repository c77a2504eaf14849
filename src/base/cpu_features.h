// This CPU's features, detected once at run time, by code compiled without instruction-set flags.
#pragma once

#include <string>
#include <vector>

namespace inferno {

struct CpuFeatures {
  // Arm
  bool neon = false;
  bool dotprod = false;  // 8-bit dot products
  bool i8mm = false;     // 8-bit matrix products
  bool bf16 = false;     // bfloat16 dot and matrix products
  bool fp16 = false;     // arithmetic on half floats
  bool fp16fml = false;  // half-float products added to f32
  // x86; each is true only when the operating system saves the registers too
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, DQ and VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx_int8 = false;  // with AMX-TILE; may_use_tiles() requests permission
  bool amx_bf16 = false;
};

[[nodiscard]] const CpuFeatures& cpu_features();
// The features this CPU has: "neon", "dotprod", ...
[[nodiscard]] std::vector<std::string> cpu_feature_names();

// Requests permission from the operating system to use the AMX tiles, for all threads of this process. False where
// there are no tiles or permission is denied.
[[nodiscard]] bool may_use_tiles();

}  // namespace inferno
