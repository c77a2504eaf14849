#include "backend/cuda/workspace.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/error.h"

namespace inferno::cuda {

void* Workspace::get(Region region, int64_t bytes) {
  const auto grow = [&](DeviceMemory& memory) {
    check(cudaDeviceSynchronize(), "growing scratch memory");
    memory = DeviceMemory();
    memory = DeviceMemory(static_cast<size_t>(bytes), frees_);
  };
  return regions_.get(region, bytes, grow).data();
}

}  // namespace inferno::cuda
