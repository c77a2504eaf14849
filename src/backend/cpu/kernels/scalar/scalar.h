// Parts of the scalar table, one per file.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"

namespace inferno {

void fill_scalar_vector(KernelTable& table);
void fill_scalar_linear(KernelTable& table);
void fill_scalar_attention(KernelTable& table);
void fill_scalar_recurrent(KernelTable& table);

}  // namespace inferno
