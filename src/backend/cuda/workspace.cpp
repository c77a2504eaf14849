#include "backend/cuda/workspace.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/error.h"

namespace inferno::cuda {

void* Workspace::get(Region region, int64_t bytes) {
  DeviceMemory& memory = regions_[static_cast<size_t>(region)];
  if (static_cast<size_t>(bytes) > memory.bytes()) {
    check(cudaDeviceSynchronize(), "growing scratch memory");
    memory = DeviceMemory();  // the old part is freed first: both need not fit
    memory = DeviceMemory(static_cast<size_t>(bytes), frees_);
  }
  return memory.data();
}

}  // namespace inferno::cuda
