// Launching a kernel with the context's stream and launch order. Device-side includes only.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int shared_bytes = 0;
};

// Kernels of a decode step have one block per multiprocessor, and two of them share it: one that computes, and the
// next, which is already loading. Each asks for a slot of the shared memory, needed or not: then a block of a kernel
// finds room where one of the kernel before the last has ended, and fewer multiprocessors get two blocks of a kernel
// and others none.
inline constexpr int kStreamSlot = 112 * 1024;
inline constexpr int kAttentionSlot = 75 * 1024;
// Of kernels that the memory's rate binds: beside one there is room for attention alone. There is nothing to be won by
// loading for two kernels at a time, and a multiprocessor with two blocks of one would hold up all others.
inline constexpr int kAloneSlot = 150 * 1024;

// A failed launch stays in cudaGetLastError; the backend looks after every op.
template <typename... Params, typename... Args>
void launch(const LaunchContext& c, const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
  constexpr int kDefaultShared = 48 * 1024;
  if (shape.shared_bytes > kDefaultShared) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes);
  }
  // Kernels that want their multiprocessor divided differently cannot run side by side: all take the same division.
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = c.stream;
  config.attrs = &attribute;
  config.numAttrs = c.overlap ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

template <typename T>
[[nodiscard]] constexpr T divide_up(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace inferno::cuda
