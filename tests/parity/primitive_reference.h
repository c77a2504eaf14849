// Every primitive once more, in double precision and with no thought of speed: what the backends' kernels are held to.
#pragma once

#include "backend/op_image.h"

namespace inferno::test {

// Runs the primitive on the image's own memory.
void run_primitive(OpImage& image);

}  // namespace inferno::test
