#include "backend/cpu/aligned_memory.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/platform.h"
#include "base/text.h"

namespace inferno {

void AlignedFree::operator()(void* data) const noexcept {
  std::free(data);
}

AlignedMemory aligned_memory(size_t bytes, PageHint hint, size_t alignment) {
  // Large allocations use huge pages where the system has them: walking down the columns of a matrix needs an address
  // translation for every row.
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool large = bytes >= kHugePage && hint == PageHint::huge;
  if (large) alignment = kHugePage;
  // aligned_alloc demands a multiple of the alignment; the rest is never touched, so it occupies no memory.
  const size_t rounded = std::max(bytes + (alignment - bytes % alignment) % alignment, alignment);
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) {
    fail("out of memory: {} more are needed; use a smaller model or type, or a smaller `context`", format_bytes(bytes));
  }
  if (large) platform::hint_huge_pages(data, bytes / kHugePage * kHugePage);
  return AlignedMemory(static_cast<std::byte*>(data));
}

}  // namespace inferno
