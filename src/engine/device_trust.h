// Kernels that the user's own system compiles, and that nobody has seen run there, are tried before they are trusted:
// on a GPU that computes something else a model runs on the CPU, and one line says why. Nobody gets wrong text
// silently.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/factory.h"

namespace inferno {

struct DeviceTrial {
  std::function<std::unique_ptr<Backend>()> make;
  std::string kernels;        // changes when the kernels or the system that compiles them do
  std::string memory;         // the file that remembers which were right; empty: none does
  std::span<const OpId> ops;  // tried; none: all
};
// Why the device is not to be trusted, or "". What was right before, by the file, is not tried again.
[[nodiscard]] std::string distrust(const DeviceTrial& trial);

// create_backend, with the default backend in place of one that is not to be trusted. INFERNO_DEVICE_CHECK=0 trusts
// every device.
[[nodiscard]] std::unique_ptr<Backend> create_trusted_backend(std::string_view choice, const BackendOptions& options);

}  // namespace inferno
