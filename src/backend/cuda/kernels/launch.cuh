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
  int cluster = 1;  // consecutive blocks that run at the same time and reach each other's shared memory
};

// Kernels of a decode step have one block per multiprocessor, and two of them share it: one that computes, and the next
// one, which already prefetches. Each reserves a fixed slot of shared memory, needed or not: so a block fits only where
// a block of the kernel before the previous one has ended, and no multiprocessor gets two blocks of one kernel while
// another gets none.
// Products that add a residual follow the others in turn. Two of theirs do not fit beside each other, so no
// multiprocessor gets two even where it has no block of attention, while one of each kind still does.
inline constexpr int kStreamSlot = 110 * 1024;
inline constexpr int kResidualSlot = 115 * 1024;
inline constexpr int kAttentionSlot = 75 * 1024;
// Products of some tens of tokens that add no residual: at most two blocks on a multiprocessor.
inline constexpr int kTileSlot = 76 * 1024;
// Of kernels that are bound by memory bandwidth: only attention fits beside one. Prefetching for two kernels at a time
// gains nothing, and a multiprocessor with two blocks of one would delay all others.
inline constexpr int kExclusiveSlot = 150 * 1024;

// A failed launch is left in cudaGetLastError; the backend checks it after every op.
template <typename... Params, typename... Args>
void launch(const LaunchContext& c, const LaunchShape& shape, void (*kernel)(Params...), Args&&... args) {
  constexpr int kDefaultShared = 48 * 1024;
  if (shape.shared_bytes > kDefaultShared) {
    // Only ever raised: a kernel has launches of several sizes, and captured ones need theirs later too.
    cudaFuncAttributes now = {};
    cudaFuncGetAttributes(&now, kernel);
    if (now.maxDynamicSharedSizeBytes < shape.shared_bytes) {
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes);
    }
  }
  // Kernels with different L1/shared carveouts cannot share a multiprocessor: all use the same.
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (c.overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(shape.cluster), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = c.stream;
  config.attrs = attributes;
  config.numAttrs = count;
  cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

template <typename T>
[[nodiscard]] constexpr T divide_up(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace inferno::cuda
