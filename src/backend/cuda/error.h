// CUDA and cuBLAS status codes become Errors.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "base/error.h"

namespace inferno::cuda {

// `what` says what was being done: "upload", or the op's name.
inline void check(cudaError_t status, std::string_view what) {
  if (status != cudaSuccess) fail("cuda: {} failed: {}", what, cudaGetErrorString(status));
}
inline void check(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail("cuda: {} failed: {}", what, cublasLtGetStatusString(status));
}

}  // namespace inferno::cuda
