// Counts the allocations of a test program: link allocations.cpp and every operator new and aligned_alloc is counted.
#pragma once

#include <cstdint>

namespace inferno::testing {

[[nodiscard]] int64_t allocations();
// Of the calling thread.
[[nodiscard]] int64_t allocations_here();

// Bytes that operator new has given out and nobody has given back, and the most that there were since the last reset;
// 0 where the C library does not say how large a block is.
[[nodiscard]] int64_t live_bytes();
[[nodiscard]] int64_t peak_bytes();
void reset_peak_bytes();

}  // namespace inferno::testing
