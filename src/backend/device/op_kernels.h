// What the devices' encoders of ops share.
#pragma once

#include "tensor/dtype.h"

namespace inferno::device {

[[nodiscard]] inline bool is_cache_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::q8_0;
}

// True while it exists: ops are planned, not run.
class Planning {
 public:
  explicit Planning(bool& planning) : planning_(planning) { planning_ = true; }
  ~Planning() { planning_ = false; }
  Planning(const Planning&) = delete;
  Planning& operator=(const Planning&) = delete;

 private:
  bool& planning_;
};

}  // namespace inferno::device
