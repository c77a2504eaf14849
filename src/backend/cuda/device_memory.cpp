#include "backend/cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "backend/cuda/error.h"
#include "base/text.h"

namespace inferno::cuda {

void* allocate_device(size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // the failure is handled here; later launches must not see it
    size_t free = 0;
    size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "querying free memory");
    fail(
        "out of GPU memory: {} more are needed, {} of {} are free; use a smaller model or type, or a smaller `context`",
        format_bytes(bytes), format_bytes(free), format_bytes(total));
  }
  check(status, "allocating device memory");
  check(cudaMemset(data, 0, bytes), "clearing device memory");
  return data;
}

void free_device(void* data) noexcept {
  (void)cudaFree(data);
}

DeviceMemory::DeviceMemory(size_t bytes, std::shared_ptr<FreeCount> frees)
    : data_(allocate_device(bytes)), bytes_(bytes), frees_(std::move(frees)) {}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  free_device(data_);
  ++frees_->value;
}

void PinnedFree::operator()(std::byte* data) const noexcept {
  (void)cudaFreeHost(data);
}

PinnedMemory pinned_memory(size_t bytes) {
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), "allocating page-locked memory");
  return PinnedMemory(static_cast<std::byte*>(data));
}

}  // namespace inferno::cuda
