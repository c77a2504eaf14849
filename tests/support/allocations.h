// Counts the allocations of a test program: link allocations.cpp and every operator new and aligned_alloc is counted.
#pragma once

#include <cstdint>

namespace inferno::testing {

[[nodiscard]] int64_t allocations();
// Of the calling thread.
[[nodiscard]] int64_t allocations_here();

}  // namespace inferno::testing
