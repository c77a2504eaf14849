// What the device can do at most: reading its memory, and multiplying large matrices.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

// Takes a fraction of a second and about half a gigabyte. Quantized products run on unpacked bf16, so their peak is
// that of bf16.
[[nodiscard]] DeviceRates measure_device_rates(const LaunchContext& context, Gemm& gemm,
                                               const std::shared_ptr<FreeCount>& frees);

}  // namespace inferno::cuda
