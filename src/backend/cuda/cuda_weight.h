// A weight in device memory: planes for quantized types (weight_layout.h), padded rows for plain ones, f32 for vectors.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/weight.h"

namespace inferno::cuda {

// Device memory of one weight: part of a chunk that small weights share, or a chunk of its own. So small weights that
// are loaded one after another are contiguous, and one matrix product can cover several of them.
class WeightMemory {
 public:
  WeightMemory() = default;
  WeightMemory(std::shared_ptr<DeviceMemory> chunk, size_t offset, size_t bytes, std::shared_ptr<FreeCount> frees)
      : chunk_(std::move(chunk)), offset_(offset), bytes_(bytes), frees_(std::move(frees)) {}
  ~WeightMemory() {
    if (frees_ != nullptr) ++frees_->value;
  }
  WeightMemory(WeightMemory&&) = default;
  WeightMemory& operator=(WeightMemory&&) = default;
  WeightMemory(const WeightMemory&) = delete;
  WeightMemory& operator=(const WeightMemory&) = delete;

  [[nodiscard]] void* data() const { return static_cast<std::byte*>(chunk_->data()) + offset_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<DeviceMemory> chunk_;
  size_t offset_ = 0;
  size_t bytes_ = 0;
  std::shared_ptr<FreeCount> frees_;
};

// Copies weights to the device in pieces, reading the next one while the last is copied and repacked. One per backend.
class WeightLoader {
 public:
  WeightLoader(const LaunchContext& context, std::shared_ptr<FreeCount> frees);
  ~WeightLoader();
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  [[nodiscard]] WeightMemory allocate(size_t bytes);
  // Rows of a matrix into planes.
  void load(const WeightSource& source, const Planes& planes);
  [[nodiscard]] cudaStream_t stream() const { return context_.stream; }

 private:
  static constexpr int kStages = 2;
  struct Stage {
    PinnedMemory host;
    DeviceMemory device;
    cudaEvent_t done = nullptr;
  };
  void reserve(size_t bytes);

  LaunchContext context_;
  std::shared_ptr<FreeCount> frees_;
  Stage stages_[kStages];
  size_t stage_bytes_ = 0;
  std::shared_ptr<DeviceMemory> chunk_;  // being filled
  size_t chunk_used_ = 0;
};

class CudaWeight final : public Weight {
 public:
  CudaWeight(const WeightSource& source, WeightUse uses, WeightLoader& loader);

  [[nodiscard]] uint64_t bytes() const override { return memory_.bytes(); }
  void read_row(int64_t row, std::span<std::byte> out) const override;

  [[nodiscard]] const Planes& planes() const { return planes_; }
  [[nodiscard]] const float* vector() const { return static_cast<const float*>(memory_.data()); }

 private:
  void load_vector(const WeightSource& source, WeightLoader& loader);

  WeightMemory memory_;
  Planes planes_;
  bool is_vector_ = false;
};

}  // namespace inferno::cuda
