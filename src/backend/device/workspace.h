// Scratch memory of a device's ops, by purpose. A region only grows; ops run one after another, so all layers share it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace inferno::device {

// Region: an enum class that ends with `count`. Memory: has bytes().
template <typename Region, typename Memory>
class Workspace {
 public:
  // At least `bytes` of the region. grow(memory) makes it larger; it waits for the device first, because ops in flight
  // may use the old memory, and frees that before it allocates: both need not fit.
  template <typename Grow>
  [[nodiscard]] Memory& get(Region region, int64_t bytes, Grow grow) {
    Memory& memory = regions_[static_cast<size_t>(region)];
    if (static_cast<size_t>(bytes) > memory.bytes()) grow(memory);
    return memory;
  }
  template <typename F>
  void each(F f) {
    for (Memory& memory : regions_) f(memory);
  }

 private:
  std::array<Memory, static_cast<size_t>(Region::count)> regions_;
};

}  // namespace inferno::device
