// Small copies between host and device around a step.
//
// An upload is staged in page-locked memory until the next launch; then one kernel fetches all staged ones, as the
// first of the step's kernels, so a captured step includes its inputs. A download is done by the step's last kernel, or
// by a kernel of its own, into page-locked memory, and a count there tells the host that it has arrived. So neither the
// copy engine nor a stream synchronization is on the path between two decode steps.
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
  // Copies the data for the next fetch. False, and nothing done: it is not small, or the page-locked memory is full or
  // still being read by a fetch, or part of `to` has been staged already.
  [[nodiscard]] bool stage(void* to, const void* host, size_t bytes);
  [[nodiscard]] const std::vector<Upload>& staged() const { return staged_; }
  // Whether a staged upload writes any of these bytes.
  [[nodiscard]] bool is_staged(const void* data, size_t bytes) const;
  // Launches the kernel that fetches what is staged.
  void launch_fetch(const LaunchContext& c) const;
  // That kernel, or a graph with it, was launched: the memory is in use until the stream is known to be idle.
  void on_fetch();
  void on_stream_idle() { fetch_in_flight_ = false; }

  // ---- downloads
  [[nodiscard]] static bool is_small(const Download& download);
  // Launches the kernel that delivers a small download.
  void launch_deliver(const LaunchContext& c, const Download& download) const;
  // That kernel, or a graph with it, was launched.
  void on_deliver() { ++expected_; }
  // Whether the last delivery has arrived.
  [[nodiscard]] bool delivered() const;
  void read_delivered(void* host, size_t bytes) const;

 private:
  PinnedMemory staging_;
  std::vector<Upload> staged_;
  size_t used_ = 0;
  bool fetch_in_flight_ = false;
  PinnedMemory inbox_;      // the count, then the data
  DeviceMemory delivered_;  // the count on the device
  uint32_t expected_ = 0;
};

}  // namespace inferno::cuda
