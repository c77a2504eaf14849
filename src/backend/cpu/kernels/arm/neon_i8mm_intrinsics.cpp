// The neon_i8mm_intrinsics table: neon_i8mm with all loops in intrinsics, in the order the compiler chooses. The same
// bits; for comparison, and for a core on which the assembly's order is no gain.
#define INFERNO_INTRINSICS_ONLY

#include "backend/cpu/kernels/arm/neon_i8mm.h"

namespace inferno {

void fill_neon_i8mm_intrinsics(KernelTable& table) {
  fill_i8mm(table, "neon_i8mm_intrinsics");
}

}  // namespace inferno
