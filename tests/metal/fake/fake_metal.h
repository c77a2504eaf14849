// A Metal device for Linux: what metal-cpp sends messages to, as strict as Metal's own validation layer.
//
// Kernels run in the emulator. Nothing runs before it is waited for, and between two barriers the last dispatch runs
// first, so that a result that is read too early, or a missing barrier, shows.
#pragma once

#include <cstddef>
#include <string>

#include "objective_c.h"

namespace fake {

// What the next device is like.
struct DeviceKind {
  bool exists = true;
  int family = 9;                   // of Apple's; 0: none of them
  size_t memory = size_t{1} << 33;  // recommended, and all there is
  bool compiles = true;             // the kernels
  size_t simd_width = 32;
  size_t max_threads = 1024;
  bool fails = false;     // what is committed
  bool residency = true;  // it has residency sets: macOS 15
};
DeviceKind& next_device();

}  // namespace fake
