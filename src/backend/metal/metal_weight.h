// A weight in memory that the GPU reads: planes (weight_planes.h), or f32 for vectors.
#pragma once

#include "backend/metal/device.h"
#include "backend/metal/weight_planes.h"
#include "backend/weight.h"

namespace inferno::metal {

class MetalWeight final : public Weight {
 public:
  // The device must outlive it.
  MetalWeight(const WeightSource& source, WeightUse uses, Device& device);
  ~MetalWeight() override;
  MetalWeight(const MetalWeight&) = delete;
  MetalWeight& operator=(const MetalWeight&) = delete;

  [[nodiscard]] uint64_t bytes() const override { return layout_.bytes; }
  void read_row(int64_t row, std::span<std::byte> out) const override;

  [[nodiscard]] const PlaneArgs& planes() const { return layout_.args; }
  // All of it: the planes, or a vector's values.
  [[nodiscard]] Binding binding() const { return {.data = memory_, .bytes = static_cast<int64_t>(layout_.bytes)}; }

 private:
  void load_vector(const WeightSource& source);
  void load_planes(const WeightSource& source);
  [[nodiscard]] std::span<std::byte> memory() const { return {memory_, static_cast<size_t>(layout_.bytes)}; }

  Device& device_;
  PlaneLayout layout_;
  std::byte* memory_ = nullptr;
  bool is_vector_ = false;
};

}  // namespace inferno::metal
