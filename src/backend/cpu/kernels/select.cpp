#include "backend/cpu/kernels/select.h"

#include "tensor/dtype.h"

namespace inferno {

static_assert(kKernelDTypes == kDTypeCount);

const KernelTable& scalar_kernels() {
  static const KernelTable table = [] {
    KernelTable made{};
    fill_scalar(made);
    return made;
  }();
  return table;
}

}  // namespace inferno
