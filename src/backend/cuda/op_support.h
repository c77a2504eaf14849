// What the files of OpRunner share.
#pragma once

#include "backend/cuda/cuda_weight.h"

namespace inferno::cuda {

[[nodiscard]] inline const CudaWeight& on_device(const Weight* w) {
  return static_cast<const CudaWeight&>(*w);
}
[[nodiscard]] inline const float* vector_or_null(const Weight* w) {
  return w == nullptr ? nullptr : on_device(w).vector();
}

// The type in which a weight is multiplied in wide mode.
[[nodiscard]] inline DType wide_type(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 ? dtype : DType::bf16;
}
[[nodiscard]] inline int64_t size_of(DType dtype) {
  return row_bytes(dtype, 1);
}

}  // namespace inferno::cuda
