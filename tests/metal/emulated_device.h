// A Device whose kernels the emulator runs. Allocations are exact, so that AddressSanitizer sees what is read beyond
// them. Nothing runs before wait(), and between two barriers the last dispatch runs first: a result that is read too
// early, or a barrier that is missing, shows.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backend/metal/device.h"
#include "emulator.h"

namespace inferno::test {

class EmulatedDevice : public metal::Device {
 public:
  explicit EmulatedDevice(emulator::Order order = emulator::Order::shuffled) : order_(order) {}

  [[nodiscard]] std::string description() const override { return "emulated"; }
  [[nodiscard]] uint64_t free_memory() const override { return uint64_t{1} << 32; }
  [[nodiscard]] std::byte* allocate(size_t bytes) override;
  void prepare(const metal::KernelId& kernel) override;
  void dispatch(const metal::Dispatch& what) override;
  void barrier() override;
  void commit() override {}
  void wait() override;
  [[nodiscard]] double last_seconds() const override { return 1e-6; }

  // A planted fault: kernels of this kind miss one barrier.
  void skip_barrier_of(metal::Kernel kernel, uint32_t number) {
    without_barrier_ = kernel;
    skipped_barrier_ = number;
  }

  [[nodiscard]] int64_t barriers() const { return barriers_; }
  [[nodiscard]] int64_t dispatches() const { return dispatches_; }

 private:
  void release(void* data) noexcept override;

  struct Encoded {
    emulator::Dispatch what;
    std::vector<std::byte> args;
    std::vector<const void*> buffers;
  };
  struct Free {
    void operator()(std::byte* data) const noexcept { ::operator delete(data, std::align_val_t{16}); }
  };

  emulator::Order order_;
  std::map<void*, std::unique_ptr<std::byte, Free>> memory_;
  std::vector<Encoded> encoded_;            // since the last barrier
  std::vector<std::vector<Encoded>> done_;  // what barriers closed
  metal::Kernel without_barrier_ = metal::Kernel::count;
  uint32_t skipped_barrier_ = 0;
  int64_t barriers_ = 0;
  int64_t dispatches_ = 0;
};

}  // namespace inferno::test
