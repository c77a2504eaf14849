// Whether the arguments of ops are what op_args.h says they are: how ops that come from a file are kept from reading or
// writing anything but their own memory. Backends check nothing of this.
#pragma once

#include "backend/op_image.h"

namespace inferno {

// Throws std::runtime_error with what is wrong: types, shapes that do not fit each other, indices out of range, results
// in the memory of indices, groups whose ops do not belong together, sizes that only an attacker would choose.
void check_arguments(const OpImage& image);

}  // namespace inferno
