// The one place that chooses a kernel table.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {

// The reference: plain loops.
[[nodiscard]] const KernelTable& scalar_kernels();

}  // namespace inferno
