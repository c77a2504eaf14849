// Small copies between host and device around a step.
//
// An upload stays in page-locked memory until the next launch; then one kernel fetches all that wait, as the first of
// the step's kernels, so a captured step brings its own inputs. A download is made by the step's last kernel, or by a
// kernel of its own, into page-locked memory, and a count there tells the host that it has come. So neither the copy
// engine nor a wait for the stream stands between two steps of a decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels/kernels.h"

namespace inferno::cuda {

struct Upload {
  void* to = nullptr;
  uint32_t offset = 0;  // in the page-locked memory
  uint32_t bytes = 0;
  bool operator==(const Upload&) const = default;
};
struct Download {
  const void* from = nullptr;
  size_t bytes = 0;
  bool operator==(const Download&) const = default;
  [[nodiscard]] bool empty() const { return from == nullptr; }
};

class Transfers {
 public:
  explicit Transfers(const std::shared_ptr<FreeCount>& frees);

  // ---- uploads
  // Takes a copy for the next fetch. False, and nothing done: it is not small, or the page-locked memory is full or
  // still in use, or part of `to` has been staged already.
  [[nodiscard]] bool stage(void* to, const void* host, size_t bytes);
  [[nodiscard]] const std::vector<Upload>& staged() const { return staged_; }
  // The kernel that fetches what is staged.
  void launch_fetch(const LaunchContext& c) const;
  // That kernel was launched: the memory is in use until the device is known to have passed it.
  void on_fetch();
  void on_passed() { in_use_ = false; }

  // ---- downloads
  [[nodiscard]] static bool is_small(const Download& download);
  // The kernel that delivers a small download.
  void launch_deliver(const LaunchContext& c, const Download& download) const;
  // That kernel was launched.
  void on_deliver() { ++expected_; }
  // Whether the last of them is done.
  [[nodiscard]] bool delivered() const;
  void take(void* host, size_t bytes) const;

 private:
  PinnedMemory outbox_;
  std::vector<Upload> staged_;
  size_t used_ = 0;
  bool in_use_ = false;
  PinnedMemory inbox_;      // the count, then the data
  DeviceMemory delivered_;  // the count on the device
  uint32_t expected_ = 0;
};

}  // namespace inferno::cuda
