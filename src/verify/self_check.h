// Whether a device computes what the definitions of the ops say, found out before a model runs on it: the small cases
// of the parity tests (op_cases.h), on the device and on a reference.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backend/backend.h"

namespace inferno {

struct SelfCheck {
  int64_t cases = 0;  // that ran
  std::string wrong;  // the first that is beyond its limit or failed, in a few words; empty: none
};

// Ends at the first case that is wrong. `reference` runs default bodies. Without `ops`: all that the device supports.
[[nodiscard]] SelfCheck self_check(Backend& device, Backend& reference, std::span<const OpId> ops = {});

}  // namespace inferno
