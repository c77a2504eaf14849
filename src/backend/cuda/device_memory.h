// Device memory, and a count of deallocations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace inferno::cuda {

// Incremented whenever device memory is freed. A captured graph holds addresses: it is valid only while this count is
// unchanged.
struct FreeCount {
  uint64_t value = 0;
};

// Zeroed: whole pages of the cache are read beyond a sequence's end, and no result depends on what memory held before.
// Throws an Error that names the need and the free amount.
[[nodiscard]] void* allocate_device(size_t bytes);
void free_device(void* data) noexcept;

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(size_t bytes, std::shared_ptr<FreeCount> frees);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        frees_(std::move(other.frees_)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(frees_, other.frees_);
    return *this;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<FreeCount> frees_;
};

// Page-locked host memory, which the device can copy from and to in the background.
struct PinnedFree {
  void operator()(std::byte* data) const noexcept;
};
using PinnedMemory = std::unique_ptr<std::byte[], PinnedFree>;
[[nodiscard]] PinnedMemory pinned_memory(size_t bytes);

}  // namespace inferno::cuda
