// The one place that chooses a kernel table: the best one this CPU can run, or the one INFERNO_ISA names.
#pragma once

#include <string_view>
#include <vector>

#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {

// The reference: plain loops.
[[nodiscard]] const KernelTable& scalar_kernels();
// What simd and parallel run. INFERNO_ISA=name forces a table; an unknown name, or one this CPU cannot run, is a usage
// Error. INFERNO_ISA=neon_i8mm_intrinsics is neon_i8mm without its assembly (arm/schedules/README.md).
[[nodiscard]] const KernelTable& best_kernels();
// The named table, or null if this CPU cannot run it or no table has that name.
[[nodiscard]] const KernelTable* find_kernels(std::string_view name);
// The same with Errors as above.
[[nodiscard]] const KernelTable& kernels_named(std::string_view name);
// Every table this CPU can run, from scalar up.
[[nodiscard]] const std::vector<const KernelTable*>& available_kernels();

}  // namespace inferno
